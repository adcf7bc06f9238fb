// AVX-512 with VNNI: products of bytes are summed in groups of four.
#include "kernels/quantized_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/compute_scratch.h"
#include "kernels/fetch_ahead.h"

#ifdef __clang__
#pragma clang attribute push(                                                          \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
// GCC 12's own header causes the warning: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define FERRY_QUANTIZED_V512
#include "kernels/quantized_x86-inl.h"
// These includes must follow the vectors.
#include "kernels/quantized_copy-inl.h"
#include "kernels/quantized_many-inl.h"

namespace ferry::kernels {
namespace {

inline __m512i load512(const void* p) { return _mm512_loadu_si512(p); }
inline __m256i halves_added(__m512i v) {
  return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

// Multiplies codes of 4 bits with few rows, 64 bytes of codes at a time. With one thread it gives
// 1.13 times the tokens per second of 32 bytes at a time (Zen 5). For codes of 8 bits a wider
// vector gained nothing.
struct Few512 {
  // Multiplies 128 codes of 4 bits from a multiple of 128 on: lanes 0 to 3 hold the first 32 codes,
  // and so on.
  static __m512i dot128(__m512i w, const SplitCodes& x) {
    const __m512i mask = _mm512_set1_epi8(15);
    const __m512i low = _mm512_and_si512(w, mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), mask);
    const __m512i even = _mm512_dpbusd_epi32(load512(x.offsets()), low, load512(x.even()));
    return _mm512_dpbusd_epi32(even, high, load512(x.odd()));
  }

  // Returns the sums of 8 groups of 32 columns, of which each vector has 4.
  static __m256i eight_sums(__m512i a, __m512i b) {
    // Each quarter alternates two lanes of a and of b; then the sums of a and b follow.
    const __m512i pairs =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i sums = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
  }

  static __m256i eight_blocks(const uint8_t* codes, const SplitCodes& x) {
    return eight_sums(dot128(load512(codes), x), dot128(load512(codes + 64), x.from(128)));
  }

  // Computes fewer than 8 groups. Activations are padded with zeros, and so are their offsets.
  static __m256i some_blocks(const uint8_t* codes, size_t groups, const SplitCodes& x) {
    const size_t bytes = groups * kBlockColumns / 2, first = bytes < 64 ? bytes : 64;
    const __m512i a = dot128(_mm512_maskz_loadu_epi8(first_lanes(first), codes), x);
    if (bytes == first) return eight_sums(a, _mm512_setzero_si512());
    const __m512i rest = _mm512_maskz_loadu_epi8(first_lanes(bytes - first), codes + 64);
    return eight_sums(a, dot128(rest, x.from(128)));
  }

  template <bool kBf16>
  static __m256 some_scales(const std::byte* scales, size_t count) {
    const auto lanes = static_cast<__mmask8>(first_lanes(count));
    if constexpr (!kBf16) return _mm256_maskz_loadu_ps(lanes, scales);
    const __m128i bits = _mm_maskz_loadu_epi16(lanes, scales);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  // The lanes of the result sum up to the products of a group of 128 columns.
  static __m256i group_of_128(const uint8_t* codes, const SplitCodes& x) {
    return halves_added(dot128(load512(codes), x));
  }

  // Returns a mask of `count` lanes, 1 to 64.
  static __mmask64 first_lanes(size_t count) { return ~uint64_t{0} >> (64 - count); }
};

struct Avx512Vnni : CopiesEightRows {
  using Wide = V512;
  using Few = Few512;
  static constexpr bool kPairs = false, kFew512 = true;
  static constexpr int kOffset4 = 8, kOffset8 = 128;
  static constexpr size_t kActs = 8;

  static __m256i dot(__m256i sum, __m256i u, __m256i s) { return _mm256_dpbusd_epi32(sum, u, s); }
  static __m512i dot(__m512i sum, __m512i u, __m512i s) { return _mm512_dpbusd_epi32(sum, u, s); }

  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows8(rows, columns, tile_rows, -128, to);
  }
};

}  // namespace
}  // namespace ferry::kernels

#include "kernels/quantized_several-inl.h"

namespace ferry::kernels {

const InstructionSet& quantized_avx512_vnni() {
  static constexpr InstructionSet set{"AVX-512 VNNI",
                                      quantize_slot<Avx512Vnni>,
                                      few4<Avx512Vnni>,
                                      few8<Avx512Vnni>,
                                      many<Avx512Vnni, 4>,
                                      many<Avx512Vnni, 8>,
                                      kTileRows<Avx512Vnni>,
                                      code_sums<Avx512Vnni>,
                                      kMostSeveral4,
                                      kMostSeveral8,
                                      several};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // x86
