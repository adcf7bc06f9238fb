// AVX2: products of bytes are summed in pairs.
#include "kernels/quantized_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/compute_scratch.h"
#include "kernels/fetch_ahead.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#include "kernels/quantized_x86-inl.h"
// These includes must follow the vectors.
#include "kernels/quantized_copy-inl.h"
#include "kernels/quantized_many-inl.h"

namespace ferry::kernels {
namespace {

struct Avx2 : CopiesEightRows {
  using Wide = V256;
  static constexpr bool kPairs = true, kFew512 = false;
  static constexpr int kOffset4 = 8, kOffset8 = 0;
  static constexpr size_t kActs = 4;

  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_wide_rows8(rows, columns, tile_rows, to);
  }
};

}  // namespace

const InstructionSet& quantized_avx2() {
  static constexpr InstructionSet set{"AVX2",          quantize_slot<Avx2>, few4<Avx2>,
                                      few8<Avx2>,      many<Avx2, 4>,       many<Avx2, 8>,
                                      kTileRows<Avx2>, code_sums<Avx2>};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // x86
