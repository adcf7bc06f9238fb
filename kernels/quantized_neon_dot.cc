// NEON with dot products of bytes.
#include "kernels/quantized_kernels.h"

#if FERRY_NEON_DOT
#include <arm_neon.h>

#include "kernels/compute_scratch.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

#include "kernels/quantized_many-inl.h"
// This include must follow that of products of many rows.
#include "kernels/quantized_neon-inl.h"

namespace ferry::kernels {
namespace {

inline int32x4_t dot_bytes(int32x4_t sum, int8x16_t a, const int8_t* b) {
  return vdotq_s32(sum, a, vld1q_s8(b));
}

struct NeonDot : NeonRows {
  static int32x4_t dot(int32x4_t sum, int32x4_t a, int32x4_t b) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
  }
  static void copy4(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows4<4>(rows, columns, tile_rows, to);
  }
  static void copy8(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows8<4>(rows, columns, tile_rows, to);
  }
};

// ---- Rows of activations

inline int16x4_t code_lanes(const float* x, float factor, int32x4_t zero_point) {
  const int32x4_t rounded = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), factor));
  return vqmovn_s32(vaddq_s32(rounded, zero_point));
}

inline int8x8_t eight_codes(const float* x, float factor, int32x4_t zero_point) {
  return vqmovn_s16(
      vcombine_s16(code_lanes(x, factor, zero_point), code_lanes(x + 4, factor, zero_point)));
}

inline void store_codes(const float* x, size_t n, const RowScale& scale, int8_t* codes) {
  const int32x4_t zero_point = vdupq_n_s32(scale.zero_point);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) vst1_s8(codes + i, eight_codes(x + i, scale.factor, zero_point));
  float rest[8] = {};
  int8_t last[8];
  __builtin_memcpy(rest, x + i, (n - i) * sizeof(float));
  vst1_s8(last, eight_codes(rest, scale.factor, zero_point));
  __builtin_memcpy(codes + i, last, n - i);
}

inline RowScale scale_of(const float* x, size_t n) {
  float32x4_t low = vdupq_n_f32(0), high = low;
  const uint32x4_t exponent = vdupq_n_u32(0x7f800000);
  uint32x4_t special = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t v = vld1q_f32(x + i);
    low = vminq_f32(low, v);
    high = vmaxq_f32(high, v);
    special =
        vorrq_u32(special, vceqq_u32(vandq_u32(vreinterpretq_u32_f32(v), exponent), exponent));
  }
  float least = vminvq_f32(low), greatest = vmaxvq_f32(high);
  bool finite = vmaxvq_u32(special) == 0;
  for (; i < n; ++i) {
    least = x[i] < least ? x[i] : least;
    greatest = x[i] > greatest ? x[i] : greatest;
    finite &= x[i] - x[i] == 0;
  }
  return row_scale(least, greatest, finite);
}

void quantize_slot(const float* x, size_t columns, bool few, const ActivationRow& row) {
  const RowScale scale = scale_of(x, columns);
  row.head().row = scale.row;
  __builtin_memset(row.codes(), 0, row.padded);
  if (scale.factor != 0) store_codes(x, columns, scale, row.codes());
  sum_blocks(row);
  if (few) split_codes(row);
}

// ---- Few rows

struct Halves {
  int32x4_t first, second;  // partial sums of the first 32 columns and of the others
};

// Multiplies 64 columns.
inline Halves dot64(const uint8_t* codes, const SplitCodes& x) {
  const uint8x16_t mask = vdupq_n_u8(15);
  const uint8x16_t a = vld1q_u8(codes), b = vld1q_u8(codes + 16);
  const int8_t *even = x.even(), *odd = x.odd();
  Halves sums{vld1q_s32(x.offsets()), vld1q_s32(x.offsets() + 4)};
  sums.first = dot_bytes(sums.first, vreinterpretq_s8_u8(vandq_u8(a, mask)), even);
  sums.first = dot_bytes(sums.first, vreinterpretq_s8_u8(vshrq_n_u8(a, 4)), odd);
  sums.second = dot_bytes(sums.second, vreinterpretq_s8_u8(vandq_u8(b, mask)), even + 16);
  sums.second = dot_bytes(sums.second, vreinterpretq_s8_u8(vshrq_n_u8(b, 4)), odd + 16);
  return sums;
}

// Multiplies 4 groups of 32 columns.
inline int32x4_t four_blocks(const uint8_t* codes, const SplitCodes& x) {
  const Halves a = dot64(codes, x), b = dot64(codes + 32, x.from(64));
  return vpaddq_s32(vpaddq_s32(a.first, a.second), vpaddq_s32(b.first, b.second));
}

inline float32x4_t four_scales(const CodedMatrix& m, size_t index, size_t count) {
  float scales[4] = {};
  for (size_t i = 0; i < count; ++i) scales[i] = scale_at(m, index + i);
  return vld1q_f32(scales);
}

inline float sum_partials(float32x4_t low, float32x4_t high) {
  float s[4];
  vst1q_f32(s, vaddq_f32(low, high));
  return (s[0] + s[2]) + (s[1] + s[3]);
}

inline float sum_blocks_of_32(const CodedMatrix& m, size_t n, const ActivationRow& row) {
  const size_t groups = Groups(m).count;
  const uint8_t* codes = row_codes(m, n);
  float32x4_t sums[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  for (size_t g = 0; g < groups; g += 4) {
    const size_t count = groups - g < 4 ? groups - g : 4;
    uint8_t rest[64] = {};
    const uint8_t* from = codes + 16 * g;
    if (count < 4) from = static_cast<const uint8_t*>(__builtin_memcpy(rest, from, 16 * count));
    const int32x4_t products = four_blocks(from, SplitCodes(row).from(kBlockColumns * g));
    float32x4_t& sum = sums[g / 4 % 2];
    sum = vfmaq_f32(sum, vcvtq_f32_s32(products), four_scales(m, n * groups + g, count));
  }
  return sum_partials(sums[0], sums[1]);
}

// Sums groups of a multiple of 64 columns, or a single group.
inline float sum_long_groups(const CodedMatrix& m, size_t n, const ActivationRow& row) {
  const Groups groups(m);
  const uint8_t* codes = row_codes(m, n);
  float sums[kPartialSums] = {};
  for (size_t g = 0; g < groups.count; ++g) {
    int32x4_t products = vdupq_n_s32(0);
    for (size_t c = 0; c < groups.columns; c += 64) {
      const size_t k = g * groups.columns + c, bytes = (groups.columns - c) / 2;
      uint8_t rest[32] = {};
      const uint8_t* from = codes + k / 2;
      if (bytes < 32) from = static_cast<const uint8_t*>(__builtin_memcpy(rest, from, bytes));
      const Halves part = dot64(from, SplitCodes(row).from(k));
      products = vaddq_s32(products, vaddq_s32(part.first, part.second));
    }
    float& sum = sums[g % kPartialSums];
    sum = __builtin_fmaf(static_cast<float>(vaddvq_s32(products)),
                         scale_at(m, n * groups.count + g), sum);
  }
  return sum_partials(vld1q_f32(sums), vld1q_f32(sums + 4));
}

void few4(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  const CodedMatrix& m = *p.matrix;
  const bool short_groups = Groups(m).columns == kBlockColumns;
  for (size_t n = begin; n < end; ++n) {
    for (size_t i = 0; i < x.rows; ++i) {
      const ActivationRow row = x.row(i);
      const float sum = short_groups ? sum_blocks_of_32(m, n, row) : sum_long_groups(m, n, row);
      p.out[i * static_cast<size_t>(m.rows) + n] = group_result(p, row.head().row, sum, n);
    }
  }
}

inline int32_t dot_row(const uint8_t* codes, const int8_t* x, size_t columns) {
  int32x4_t sums[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
  const auto* w = reinterpret_cast<const int8_t*>(codes);
  size_t k = 0;
  for (; k + 64 <= columns; k += 64) {
    for (size_t i = 0; i < 4; ++i) {
      sums[i] = dot_bytes(sums[i], vld1q_s8(w + k + 16 * i), x + k + 16 * i);
    }
  }
  int8_t rest[64] = {};
  __builtin_memcpy(rest, w + k, columns - k);
  for (size_t i = 0; k + 16 * i < columns; ++i) {
    sums[i] = dot_bytes(sums[i], vld1q_s8(rest + 16 * i), x + k + 16 * i);
  }
  return vaddvq_s32(vaddq_s32(vaddq_s32(sums[0], sums[1]), vaddq_s32(sums[2], sums[3])));
}

void few8(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  for (size_t n = begin; n < end; ++n) {
    for (size_t i = 0; i < x.rows; ++i) {
      const ActivationRow row = x.row(i);
      const int32_t sum = dot_row(row_codes(*p.matrix, n), row.codes(), x.columns);
      p.out[i * static_cast<size_t>(p.matrix->rows) + n] = row_result(p, row.head().row, sum, n);
    }
  }
}

void code_sums(const CodedMatrix& m, size_t begin, size_t end, int32_t* sums) {
  const auto columns = static_cast<size_t>(m.columns);
  int8_t ones[64];
  __builtin_memset(ones, 1, sizeof ones);
  for (size_t n = begin; n < end; ++n) {
    sums[n] = 0;
    for (size_t k = 0; k < columns; k += 64) {
      sums[n] += dot_row(row_codes(m, n) + k, ones, columns - k < 64 ? columns - k : 64);
    }
  }
}

}  // namespace

const InstructionSet& quantized_neon_dot() {
  static constexpr InstructionSet set{
      "NEON dot",       quantize_slot,      few4,     few8, many<NeonDot, 4>,
      many<NeonDot, 8>, kTileRows<NeonDot>, code_sums};
  return set;
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // FERRY_NEON_DOT
