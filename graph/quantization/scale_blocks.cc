// Blocks whose groups have a scale only: value = scale * code. In q3_k and q6_k the scales of the
// groups of a block are codes themselves.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/scale_blocks.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "graph/quantization/block_encoder.h"
#include "graph/quantization/block_search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

constexpr size_t kValues = 256, kGroups = 16, kGroupSize = 16;
using Codes = std::array<uint8_t, kValues>;  // in the order of the values

// BlockScales holds the results of a search for all groups of a block.
struct BlockScales {
  std::array<float, kGroups> scales, factors;
  std::array<float, kGroups> weights;  // sums
};

// Returns the scale of largest magnitude, the first of equals.
HWY_INLINE float largest_of(const std::array<float, kGroups>& scales) {
  float largest = 0;
  for (const float scale : scales) {
    if (std::abs(scale) > std::abs(largest)) largest = scale;
  }
  return largest;
}

// Searches all groups of a block, with weights that weigh(side, first group) sets.
template <class Weigh>
HWY_INLINE void search_block(int limit, const float* x, BlockScales& out, const Weigh& weigh) {
  SideBySide<kGroupSize> side;
  Scales found;
  for (size_t g = 0; g < kGroups; g += kSideGroups) {
    side.load(x + g * kGroupSize, kSideGroups);
    weigh(side, g);
    side.sum_weights(out.weights.data() + g, kSideGroups);
    search_scales(limit, side, found);
    std::copy_n(found.scales.data(), kSideGroups, out.scales.data() + g);
    std::copy_n(found.factors.data(), kSideGroups, out.factors.data() + g);
  }
}

// In each half of 128 codes, 64 bytes of nibbles hold the first 64 codes in the low nibbles and the
// others in the high ones. 32 bytes hold the upper bits of four codes each.
HWY_INLINE void put_six_bits(const Codes& codes, uint8_t* low, uint8_t* high) {
  for (size_t half = 0; half < kValues; half += 128, low += 64, high += 32) {
    const uint8_t* c = codes.data() + half;
    for (size_t i = 0; i < 64; ++i) low[i] = static_cast<uint8_t>((c[i] & 0xf) | c[i + 64] << 4);
    for (size_t i = 0; i < 32; ++i) {
      high[i] = static_cast<uint8_t>(c[i] >> 4 | c[i + 32] >> 4 << 2 | c[i + 64] >> 4 << 4 |
                                     c[i + 96] >> 4 << 6);
    }
  }
}

void encode_q6_k_task(const BlockRows& rows, uint8_t* out) {
  constexpr int kLimit = 32;
  Codes codes;
  BlockScales found;
  const float* x = rows.values;
  const size_t blocks = rows.rows * rows.columns / kValues, across = rows.columns / kValues;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 210) {
    search_block(kLimit, x, found, [&](SideBySide<kGroupSize>& side, size_t g) {
      if (rows.importance == nullptr) return side.weigh_by_squares();
      side.load_weights(rows.importance + b % across * kValues + g * kGroupSize, kSideGroups);
    });
    const float largest = largest_of(found.scales);
    if (std::abs(largest) < kAllZero) {
      std::memset(out, 0, 210);
      continue;
    }
    const float factor = -128.0f / largest;
    put_f16(out + 208, 1 / factor);
    const float d = f16_at(out + 208);
    for (size_t g = 0; g < kGroups; ++g) {
      const int code = std::min(127, rounded(factor * found.scales[g]));
      out[192 + g] = static_cast<uint8_t>(code);
      const float scale = d * static_cast<float>(static_cast<int8_t>(out[192 + g]));
      const float* group = x + g * kGroupSize;
      uint8_t* to = codes.data() + g * kGroupSize;
      if (scale != 0) {
        rounded_codes(group, kGroupSize, scale, kLimit, to);
      } else {
        searched_codes(group, kGroupSize, found.scales[g], found.factors[g], kLimit, to);
      }
    }
    put_six_bits(codes, out, out + 128);
  }
}

// -- q3_k: codes of 3 bits

constexpr int kLimit3 = 4;

// Searches a scale by changing one code after the other, as long as that makes the sum of squares
// weighted with x * x less. Returns the scale. `codes` gets the codes plus kLimit3.
HWY_INLINE float refine_scale(const float* x, uint8_t* codes) {
  float largest = 0;
  for (size_t i = 0; i < kGroupSize; ++i) {
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  if (std::abs(largest) < kAllZero) {
    std::fill_n(codes, kGroupSize, uint8_t{0});
    return 0;
  }
  const auto code_at = [](float value) {
    return std::clamp(rounded(value), -kLimit3, kLimit3 - 1);
  };
  const float factor = static_cast<float>(-kLimit3) / largest;
  std::array<int, kGroupSize> code;
  float sum_lx = 0, sum_l2 = 0;
  for (size_t i = 0; i < kGroupSize; ++i) {
    code[i] = code_at(factor * x[i]);
    const float w = x[i] * x[i];
    const auto l = static_cast<float>(code[i]);
    sum_lx += w * x[i] * l;
    sum_l2 += w * l * l;
  }
  bool changed = true;
  for (int round = 0; round < 5 && changed; ++round) {
    changed = false;
    for (size_t i = 0; i < kGroupSize; ++i) {
      const float w = x[i] * x[i];
      const auto old = static_cast<float>(code[i]);
      float lx = sum_lx - w * x[i] * old;
      if (!(lx > 0)) continue;
      float l2 = sum_l2 - w * old * old;
      const int tried = code_at(x[i] * l2 / lx);
      if (tried == code[i]) continue;
      lx += w * x[i] * static_cast<float>(tried);
      l2 += w * static_cast<float>(tried) * static_cast<float>(tried);
      if (!(l2 > 0 && lx * lx * sum_l2 > sum_lx * sum_lx * l2)) continue;
      code[i] = tried;
      sum_lx = lx;
      sum_l2 = l2;
      changed = true;
    }
  }
  for (size_t i = 0; i < kGroupSize; ++i) codes[i] = static_cast<uint8_t>(code[i] + kLimit3);
  return sum_l2 > 0 ? sum_lx / sum_l2 : 0;
}

// Rounds the scales of a block without an importance matrix to codes plus 32. Returns the scale of
// the codes.
HWY_INLINE float round_scales3(const std::array<float, kGroups>& scales,
                               std::array<uint8_t, kGroups>& codes) {
  const float largest = largest_of(scales);
  codes.fill(0);
  if (largest == 0) return 0;
  const float factor = -32.0f / largest;
  for (size_t g = 0; g < kGroups; ++g) {
    codes[g] = static_cast<uint8_t>(std::clamp(rounded(factor * scales[g]), -32, 31) + 32);
  }
  return 1 / factor;
}

// Searches the scale of the codes of scales with an importance matrix. Returns the scale.
HWY_INLINE float search_scales3(const BlockScales& found, std::array<uint8_t, kGroups>& codes) {
  SideBySide<kGroups> side;
  side.load(found.scales.data(), 1);
  side.load_weights(found.weights.data(), 1);
  Scales of_scales;
  search_scales(32, side, of_scales);
  searched_codes(found.scales.data(), kGroups, of_scales.scales[0], of_scales.factors[0], 32,
                 codes.data());
  return of_scales.scales[0];
}

// Stores the high bits of the codes, the two low bits, and six bits of each scale.
HWY_INLINE void put_block3(const Codes& codes, const std::array<uint8_t, kGroups>& scales,
                           uint8_t* out) {
  std::memset(out, 0, 32);
  for (size_t i = 0; i < kValues; ++i) {
    out[i % 32] = static_cast<uint8_t>(out[i % 32] | (codes[i] >> 2 & 1) << i / 32);
  }
  for (size_t i = 0; i < 64; ++i) {
    const uint8_t* c = codes.data() + i / 32 * 128 + i % 32;
    out[32 + i] =
        static_cast<uint8_t>((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
  }
  uint8_t* to = out + 96;
  for (size_t j = 0; j < 8; ++j) {
    to[j] = static_cast<uint8_t>((scales[j] & 0xf) | (scales[j + 8] & 0xf) << 4);
  }
  for (size_t j = 0; j < 4; ++j) {
    to[8 + j] = static_cast<uint8_t>(scales[j] >> 4 | scales[j + 4] >> 4 << 2 |
                                     scales[j + 8] >> 4 << 4 | scales[j + 12] >> 4 << 6);
  }
}

void encode_q3_k_task(const BlockRows& rows, uint8_t* out) {
  Codes codes;
  BlockScales found;
  std::array<uint8_t, kGroups> scale_codes;
  const float* x = rows.values;
  const size_t blocks = rows.rows * rows.columns / kValues, across = rows.columns / kValues;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 110) {
    float d = 0;
    if (rows.importance == nullptr) {
      for (size_t g = 0; g < kGroups; ++g) {
        found.scales[g] = refine_scale(x + g * kGroupSize, codes.data() + g * kGroupSize);
      }
      d = round_scales3(found.scales, scale_codes);
    } else {
      const float squares = 2 * sum_of_squares(x, kValues) / static_cast<float>(kValues);
      search_block(kLimit3, x, found, [&](SideBySide<kGroupSize>& side, size_t g) {
        side.weigh(rows.importance + b % across * kValues + g * kGroupSize, squares, kSideGroups);
      });
      for (size_t g = 0; g < kGroups; ++g) {
        searched_codes(x + g * kGroupSize, kGroupSize, found.scales[g], found.factors[g], kLimit3,
                       codes.data() + g * kGroupSize);
      }
      d = search_scales3(found, scale_codes);
    }
    put_f16(out + 108, d);
    for (size_t g = 0; g < kGroups; ++g) {
      const float scale = f16_at(out + 108) * static_cast<float>(scale_codes[g] - 32);
      if (scale == 0) continue;
      rounded_codes(x + g * kGroupSize, kGroupSize, scale, kLimit3, codes.data() + g * kGroupSize);
    }
    put_block3(codes, scale_codes, out);
  }
}

// Blocks of 32 values with an importance matrix: q4_0 and q5_0. A block has an f16 scale and its
// codes.
HWY_INLINE void search_small_scales(const BlockRows& rows, int limit, size_t bytes, uint8_t* out,
                                    void (*put_codes)(const uint8_t*, uint8_t*)) {
  SideBySide<32> side;
  Scales found;
  const float* x = rows.values;
  for (size_t row = 0; row < rows.rows; ++row) {
    const float squares =
        sum_of_squares(x, rows.columns) / static_cast<float>(static_cast<int64_t>(rows.columns));
    for (size_t at = 0; at < rows.columns;) {
      const size_t groups = std::min(kSideGroups, (rows.columns - at) / 32);
      side.load(x, groups);
      side.weigh(rows.importance + at, squares, groups);
      search_scales(limit, side, found);
      for (size_t g = 0; g < groups; ++g, x += 32, at += 32, out += bytes) {
        std::array<uint8_t, 32> codes;
        searched_codes(x, 32, found.scales[g], found.factors[g], limit, codes.data());
        put_f16(out, found.scales[g]);
        put_codes(codes.data(), out + 2);
      }
    }
  }
}

void search_q4_0_task(const BlockRows& rows, uint8_t* out) {
  search_small_scales(rows, 8, 18, out, put_nibbles32);
}

void search_q5_0_task(const BlockRows& rows, uint8_t* out) {
  search_small_scales(rows, 16, 22, out, put_five_bits32);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(encode_q3_k_task);
HWY_EXPORT(encode_q6_k_task);
HWY_EXPORT(search_q4_0_task);
HWY_EXPORT(search_q5_0_task);
}  // namespace

void encode_q3_k(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q3_k_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void encode_q6_k(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q6_k_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void search_q4_0(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(search_q4_0_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void search_q5_0(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(search_q5_0_task)(rows, reinterpret_cast<uint8_t*>(out));
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
