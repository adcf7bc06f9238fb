// NEON with products of matrices of bytes, two rows by two. Few rows of activations are multiplied
// by dot products.
#include "kernels/quantized_kernels.h"

#if FERRY_NEON_I8MM
#include <arm_neon.h>

#include "kernels/compute_scratch.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#endif

#include "kernels/quantized_many-inl.h"
// This include must follow that of products of many rows.
#include "kernels/quantized_neon-inl.h"

namespace ferry::kernels {
namespace {

inline int8x16_t two_runs(const int8_t* first, const int8_t* second) {
  return vcombine_s8(vld1_s8(first), vld1_s8(second));
}

// A run of 8 columns of two rows of the matrix is a vector, as is that of two rows of activations.
// The four sums of such a product are those of row 0 with both rows of the matrix, then of row 1.
struct NeonI8mm : NeonRows {
  static constexpr size_t kRun = 8, kRowPairs = kTileRows<NeonRows> / 2;

  static void copy4(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows4<kRun>(rows, columns, tile_rows, to);
  }
  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows8<kRun>(rows, columns, tile_rows, to);
  }
  static int8x16_t pair_at(const std::byte* tile, size_t s, size_t pair) {
    return vld1q_s8(reinterpret_cast<const int8_t*>(tile) + (s * kRowPairs + pair) * 2 * kRun);
  }

  // Adds products of columns [k, k + 32) to the sums. Those of rows i and i + 1, which are a pair,
  // are as settle() expects them; those of a last row without another have a lane for each row.
  template <size_t kM>
  static inline __attribute__((always_inline)) void add_block(const std::byte* tile,
                                                              const int8_t* const (&codes)[kM],
                                                              size_t k, int32x4_t (&sums)[kM][2]) {
    if constexpr (kM % 2 != 0) add_last_row(tile, codes[kM - 1] + k, sums[kM - 1]);
#pragma GCC unroll 4
    for (size_t s = 0; s < kBlockColumns / kRun; ++s) {
      int8x16_t w[kRowPairs];
#pragma GCC unroll 4
      for (size_t p = 0; p < kRowPairs; ++p) w[p] = pair_at(tile, s, p);
#pragma GCC unroll 4
      for (size_t i = 0; i + 2 <= kM; i += 2) {
        const int8x16_t x = two_runs(codes[i] + k + kRun * s, codes[i + 1] + k + kRun * s);
#pragma GCC unroll 4
        for (size_t p = 0; p < kRowPairs; ++p) {
          int32x4_t& sum = sums[i + p / 2][p % 2];
          sum = vmmlaq_s32(sum, x, w[p]);
        }
      }
    }
  }
  static inline __attribute__((always_inline)) void add_last_row(const std::byte* tile,
                                                                 const int8_t* x,
                                                                 int32x4_t (&sums)[2]) {
    int32x4_t of_pairs[kRowPairs] = {};
#pragma GCC unroll 4
    for (size_t s = 0; s < kBlockColumns / kRun; ++s) {
      const int8x16_t run = two_runs(x + kRun * s, x + kRun * s);
#pragma GCC unroll 4
      for (size_t p = 0; p < kRowPairs; ++p) {
        of_pairs[p] = vdotq_s32(of_pairs[p], pair_at(tile, s, p), run);
      }
    }
    sums[0] = vaddq_s32(sums[0], vpaddq_s32(of_pairs[0], of_pairs[1]));
    sums[1] = vaddq_s32(sums[1], vpaddq_s32(of_pairs[2], of_pairs[3]));
  }

  // Gives each row of activations its sums, with a lane for each row of the matrix.
  template <size_t kM>
  static inline __attribute__((always_inline)) void settle(int32x4_t (&sums)[kM][2]) {
#pragma GCC unroll 4
    for (size_t i = 0; i + 2 <= kM; i += 2) {
      int64x2_t of_pairs[kRowPairs];
      for (size_t p = 0; p < kRowPairs; ++p) {
        of_pairs[p] = vreinterpretq_s64_s32(sums[i + p / 2][p % 2]);
      }
      for (size_t h = 0; h < 2; ++h) {
        const int64x2_t a = of_pairs[2 * h], b = of_pairs[2 * h + 1];
        sums[i][h] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
        sums[i + 1][h] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
      }
    }
  }
};

}  // namespace

const InstructionSet& quantized_neon_i8mm() {
  static const InstructionSet& dot = quantized_neon_dot();
  static const InstructionSet set{
      "NEON i8mm",       dot.quantize,        dot.few4,     dot.few8, many<NeonI8mm, 4>,
      many<NeonI8mm, 8>, kTileRows<NeonI8mm>, dot.code_sums};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // FERRY_NEON_I8MM
