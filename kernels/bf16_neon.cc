// NEON with products of matrices of bf16, of two rows by two. Every sum is made in the order of k,
// four products at a time, by a single lane, so that it does not depend on its neighbours. The
// instruction rounds sums to odd: inexact ones get an odd last digit.
// Source: Arm, Architecture Reference Manual for A-profile (BFMMLA).
#include "kernels/bf16_linear.h"
#include "kernels/processor.h"

#if FERRY_NEON_BF16
#include <arm_neon.h>

#include <cstring>

#include "core/dtype.h"
#include "kernels/compute_scratch.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#endif

namespace ferry::kernels {
namespace {

// A tile of out has up to 4 pairs of rows and 4 pairs of columns.
constexpr size_t kRowPairs = 4, kColumnPairs = 4, kColumns = 2 * kColumnPairs;
// Columns of a product of few rows are read where they are stored; others are copied first.
constexpr size_t kFewRows = 2 * kRowPairs;

inline bfloat16x8_t as_bf16(uint16x8_t bits) { return vreinterpretq_bf16_u16(bits); }

// Rows of w that become columns of out. The last row of w is repeated in place of missing ones.
struct Strip {
  const uint16_t* rows[kColumns];
  size_t k;

  Strip(const Bf16Product& p, size_t column) : k(p.k) {
    for (size_t r = 0; r < kColumns; ++r) {
      rows[r] = p.w + (column + r < p.n ? column + r : p.n - 1) * p.k;
    }
  }
  // Returns columns [4 s, 4 s + 4) of two rows, with zeros behind their end.
  uint16x8_t operator()(size_t s, size_t pair) const {
    const uint16_t *first = rows[2 * pair] + 4 * s, *second = rows[2 * pair + 1] + 4 * s;
    if (4 * s + 4 <= k) return vcombine_u16(vld1_u16(first), vld1_u16(second));
    uint16_t rest[8] = {};
    std::memcpy(rest, first, (k - 4 * s) * sizeof(uint16_t));
    std::memcpy(rest + 4, second, (k - 4 * s) * sizeof(uint16_t));
    return vld1q_u16(rest);
  }
};

// A copy of a strip in the order in which it is read.
struct CopiedStrip {
  const uint16_t* values;
  uint16x8_t operator()(size_t s, size_t pair) const {
    return vld1q_u16(values + (s * kColumnPairs + pair) * 8);
  }
};

void copy_strip(const Strip& strip, size_t steps, uint16_t* to) {
  for (size_t s = 0; s < steps; ++s) {
    for (size_t pair = 0; pair < kColumnPairs; ++pair, to += 8) vst1q_u16(to, strip(s, pair));
  }
}

// Computes `kPairs` pairs of rows of out from `pair` on.
template <size_t kPairs, class Columns>
void tile(const Bf16Product& p, const uint16_t* packed, size_t pair, size_t column, size_t end,
          const Columns& columns) {
  const size_t steps = tiles_along(p.k, 4);
  const uint16_t* x = packed + pair * steps * 8;
  float32x4_t sums[kPairs][kColumnPairs];
  for (auto& row : sums) {
    for (float32x4_t& sum : row) sum = vdupq_n_f32(0);
  }
  for (size_t s = 0; s < steps; ++s) {
    bfloat16x8_t w[kColumnPairs];
#pragma GCC unroll 4
    for (size_t c = 0; c < kColumnPairs; ++c) w[c] = as_bf16(columns(s, c));
#pragma GCC unroll 4
    for (size_t r = 0; r < kPairs; ++r) {
      const bfloat16x8_t row = as_bf16(vld1q_u16(x + (r * steps + s) * 8));
#pragma GCC unroll 4
      for (size_t c = 0; c < kColumnPairs; ++c) sums[r][c] = vbfmmlaq_f32(sums[r][c], row, w[c]);
    }
  }
  for (size_t i = 0; i < 2 * kPairs && 2 * pair + i < p.m; ++i) {
    uint16_t* out = p.out + (2 * pair + i) * p.n;
    for (size_t c = 0; c < kColumns && column + c < end; ++c) {
      float four[4];
      vst1q_f32(four, sums[i / 2][c / 2]);
      out[column + c] = f32_to_bf16(four[i % 2 * 2 + c % 2]);
    }
  }
}

template <class Columns>
void all_rows(const Bf16Product& p, const uint16_t* packed, size_t column, size_t end,
              const Columns& columns) {
  const size_t pairs = tiles_along(p.m, 2);
  size_t pair = 0;
  for (; pair + kRowPairs <= pairs; pair += kRowPairs) {
    tile<kRowPairs>(p, packed, pair, column, end, columns);
  }
  for (; pair < pairs; ++pair) tile<1>(p, packed, pair, column, end, columns);
}

}  // namespace

void bf16_columns_neon(const Bf16Product& p, const uint16_t* packed, size_t begin, size_t end) {
  const size_t steps = tiles_along(p.k, 4);
  const bool few = p.m <= kFewRows;
  const Scratch copy(few ? 0 : steps * kColumnPairs * 4);
  auto* copied = reinterpret_cast<uint16_t*>(copy.data());
  for (size_t column = begin; column < end; column += kColumns) {
    const Strip strip(p, column);
    if (few) {
      all_rows(p, packed, column, end, strip);
      continue;
    }
    copy_strip(strip, steps, copied);
    all_rows(p, packed, column, end, CopiedStrip{copied});
  }
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // FERRY_NEON_BF16
