// AVX-512 with VNNI: products of bytes by fours.
#include "runner/kernels/quantized_targets.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "runner/kernels/compute_scratch.h"
#include "runner/kernels/fetch_ahead.h"
#include "runner/kernels/quantized_row.h"

#ifdef __clang__
#pragma clang attribute push(                                                          \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif

#define FERRY_QUANTIZED_V512
#include "runner/kernels/quantized_copy-inl.h"
#include "runner/kernels/quantized_x86-inl.h"
// After the vectors.
#include "runner/kernels/quantized_many-inl.h"

namespace ferry::kernels {
namespace {

struct Avx512Vnni {
  using Wide = V512;
  static constexpr bool kPairs = false;
  static constexpr int kOffset4 = 8, kOffset8 = 128;
  static constexpr size_t kActs = 6, kCopied = 8;

  static __m256i dot(__m256i sum, __m256i u, __m256i s) { return _mm256_dpbusd_epi32(sum, u, s); }
  static __m512i dot(__m512i sum, __m512i u, __m512i s) { return _mm512_dpbusd_epi32(sum, u, s); }

  static void copy4(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows4(rows, columns, tile_rows, to);
  }
  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows8(rows, columns, tile_rows, -128, to);
  }
};

}  // namespace

const InstructionSet& quantized_avx512_vnni() {
  static constexpr InstructionSet set{
      "AVX-512 VNNI",      quantize_slot,       few4<Avx512Vnni>,      few8<Avx512Vnni>,
      many<Avx512Vnni, 4>, many<Avx512Vnni, 8>, kTileRows<Avx512Vnni>, code_sums<Avx512Vnni>};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // x86
