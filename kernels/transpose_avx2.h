// Transposes 8 x 8 lanes of 32 bits with AVX2.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>

namespace ferry::kernels {

// Lane j of vector i becomes lane i of vector j. Callers must be compiled for AVX2.
inline __attribute__((always_inline, target("avx2"))) void transpose(__m256i (&v)[8]) {
  __m256i a[8], b[8];
  for (size_t i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (size_t i = 0; i < 8; i += 4) {
    for (size_t j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

}  // namespace ferry::kernels
#endif  // x86
