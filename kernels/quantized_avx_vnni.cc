// AVX-VNNI, for processors without AVX-512: products of bytes are summed in groups of four.
#include "kernels/quantized_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/compute_scratch.h"
#include "kernels/fetch_ahead.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avxvnni")
#endif

#include "kernels/quantized_x86-inl.h"
// These includes must follow the vectors.
#include "kernels/quantized_copy-inl.h"
#include "kernels/quantized_many-inl.h"

namespace ferry::kernels {
namespace {

struct AvxVnni : CopiesEightRows {
  using Wide = V256;
  static constexpr bool kPairs = false, kFew512 = false;
  static constexpr int kOffset4 = 8, kOffset8 = 128;
  static constexpr size_t kActs = 4;

  static __m256i dot(__m256i sum, __m256i u, __m256i s) {
    return _mm256_dpbusd_avx_epi32(sum, u, s);
  }

  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows8(rows, columns, tile_rows, -128, to);
  }
};

}  // namespace

const InstructionSet& quantized_avx_vnni() {
  static constexpr InstructionSet set{"AVX-VNNI",         quantize_slot<AvxVnni>, few4<AvxVnni>,
                                      few8<AvxVnni>,      many<AvxVnni, 4>,       many<AvxVnni, 8>,
                                      kTileRows<AvxVnni>, code_sums<AvxVnni>};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // x86
