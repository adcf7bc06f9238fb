// AVX-512 without VNNI: like AVX2, with wider tiles for many rows.
#include "kernels/quantized_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/compute_scratch.h"
#include "kernels/fetch_ahead.h"

#ifdef __clang__
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define FERRY_QUANTIZED_V512
#include "kernels/quantized_x86-inl.h"
// These includes must follow the vectors.
#include "kernels/quantized_copy-inl.h"
#include "kernels/quantized_many-inl.h"

namespace ferry::kernels {
namespace {

struct Avx512 : CopiesEightRows {
  using Wide = V512;
  static constexpr bool kPairs = true, kFew512 = false;
  static constexpr int kOffset4 = 8, kOffset8 = 0;
  static constexpr size_t kActs = 5;

  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_wide_rows8(rows, columns, tile_rows, to);
  }
};

}  // namespace

const InstructionSet& quantized_avx512() {
  static constexpr InstructionSet set{"AVX-512",         quantize_slot<Avx512>, few4<Avx512>,
                                      few8<Avx512>,      many<Avx512, 4>,       many<Avx512, 8>,
                                      kTileRows<Avx512>, code_sums<Avx512>};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // x86
