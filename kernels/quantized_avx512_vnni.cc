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
inline __m512i both(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
inline __m256i halves_added(__m512i v) {
  return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

// Multiplies codes of 4 bits with few rows, 64 bytes of codes at a time. With one thread it gives
// 1.13 times the tokens per second of 32 bytes at a time (Zen 5). For codes of 8 bits a wider
// vector gained nothing.
struct Few512 {
  // Multiplies 128 codes of 4 bits: lanes 0 to 3 hold the first 32 codes, and so on.
  static __m512i dot128(const uint8_t* codes, const int8_t* split, const int32_t* offsets) {
    const __m512i mask = _mm512_set1_epi8(15), w = load512(codes);
    const __m512i low = _mm512_and_si512(w, mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), mask);
    const __m512i even = both(load256(split), load256(split + 64));
    const __m512i odd = both(load256(split + 32), load256(split + 96));
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(load512(offsets), low, even), high, odd);
  }

  // Returns the sums of 8 groups of 32 columns.
  static __m256i eight_blocks(const uint8_t* codes, const int8_t* split, const int32_t* offsets) {
    const __m512i a = dot128(codes, split, offsets);
    const __m512i b = dot128(codes + 64, split + 128, offsets + 16);
    // Each quarter alternates two lanes of a and of b; then the sums of a and b follow.
    const __m512i pairs =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i sums = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
  }

  // The lanes of the result sum up to the products of a group of 128 columns.
  static __m256i group_of_128(const uint8_t* codes, const int8_t* split, const int32_t* offsets) {
    return halves_added(dot128(codes, split, offsets));
  }
};

struct Avx512Vnni : CopiesEightRows {
  using Wide = V512;
  using Few = Few512;
  static constexpr bool kPairs = false, kFew512 = true;
  static constexpr int kOffset4 = 8, kOffset8 = 128;
  static constexpr size_t kActs = 6;

  static __m256i dot(__m256i sum, __m256i u, __m256i s) { return _mm256_dpbusd_epi32(sum, u, s); }
  static __m512i dot(__m512i sum, __m512i u, __m512i s) { return _mm512_dpbusd_epi32(sum, u, s); }

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
