// q4_k, q5_k and q6_k: blocks of 256 values in groups, whose scales are codes themselves. ggml
// searches the scale of each group among some candidates. Here a lane computes one group in ggml's
// order, so sums are equal to the bit, and groups are searched side by side.
#include "graph/quantization/targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/k_blocks.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "graph/quantization/block_encoder.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kValues = 256;
using F32 = hn::CappedTag<float, 8>;
using VF32 = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());
constexpr float kRounder = 12582912.0f;      // 1.5 * 2^23: adding it rounds to nearest even
constexpr float kAllZero = 1e-15f;           // a group whose values are below is all zeros
using Codes = std::array<uint8_t, kValues>;  // in the order of the values

// Rounds x to an integer between low and high. For |x| >= 2^22 the result is that of ggml.
HWY_INLINE int rounded(float x) {
  return static_cast<int>(std::bit_cast<uint32_t>(x + kRounder) & 0x7fffffu) - 0x400000;
}
HWY_INLINE VF32 rounded(VF32 x, int low, int high) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(di, hn::Add(x, hn::Set(d, kRounder)));
  const auto code = hn::Sub(hn::And(bits, hn::Set(di, 0x7fffff)), hn::Set(di, 0x400000));
  return hn::ConvertTo(d, hn::Min(hn::Max(code, hn::Set(di, low)), hn::Set(di, high)));
}

HWY_INLINE float f16_of(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return f16_to_f32(bits);
}

// Transposes a block, so that values of equal place in their groups are adjacent: [place * kGroups
// + group].
template <size_t kGroups>
HWY_INLINE void transpose(const float* x, float* out) {
  constexpr size_t kSize = kValues / kGroups;
  for (size_t g = 0; g < kGroups; ++g) {
    for (size_t i = 0; i < kSize; ++i) out[i * kGroups + g] = x[g * kSize + i];
  }
}

// -- blocks with a minimum: value = scale * code - minimum

struct RangeSearch {
  int top;      // the largest code
  float first;  // the candidates divide the range by top + first, top + first + 0.1, ...
  int steps;
};
constexpr RangeSearch kSearch4 = {15, -1.0f, 20};
constexpr RangeSearch kSearch5 = {31, -0.5f, 15};
constexpr size_t kRanges = 8, kRangeSize = 32;

struct Ranges {
  alignas(32) std::array<float, kRanges> scales, minima;
  // The codes of the search are round((value - base) * factor).
  alignas(32) std::array<float, kRanges> factors, bases;
};

HWY_INLINE VF32 code_of(VF32 x, VF32 base, VF32 factor, int top) {
  return rounded(hn::Mul(factor, hn::Sub(x, base)), 0, top);
}

// Searches groups [lane, lane + kLanes) of the transposed block x.
HWY_INLINE void search_ranges(const RangeSearch& search, const float* all, size_t lane,
                              Ranges& out) {
  const F32 d;
  const VF32 zero = hn::Zero(d);
  const auto top = static_cast<float>(search.top);
  // These are no std::array, because its constructor is not compiled for the target, as those of
  // NEON vectors are.
  VF32 x[kRangeSize], weight[kRangeSize], code[kRangeSize];
  VF32 squares = zero;
  for (size_t i = 0; i < kRangeSize; ++i) {
    x[i] = hn::LoadU(d, all + i * kRanges + lane);
    squares = hn::Add(squares, hn::Mul(x[i], x[i]));
  }
  const VF32 mean = hn::Sqrt(hn::Div(squares, hn::Set(d, 32.0f)));
  VF32 low = x[0], high = x[0], sum_w = zero, sum_x = zero;
  for (size_t i = 0; i < kRangeSize; ++i) {
    weight[i] = hn::Add(mean, hn::Abs(x[i]));
    low = hn::Min(low, x[i]);
    high = hn::Max(high, x[i]);
    sum_w = hn::Add(sum_w, weight[i]);
    sum_x = hn::Add(sum_x, hn::Mul(weight[i], x[i]));
  }
  low = hn::Min(low, zero);
  const auto flat = hn::Eq(low, high);
  VF32 factor = hn::Div(hn::Set(d, top), hn::Sub(high, low)), base = low, minimum = low;
  VF32 scale = hn::Div(hn::Set(d, 1.0f), factor), least = zero;
  for (size_t i = 0; i < kRangeSize; ++i) {
    const VF32 value = hn::Add(hn::Mul(scale, code_of(x[i], base, factor, search.top)), low);
    const VF32 off = hn::Sub(value, x[i]);
    least = hn::Add(least, hn::Mul(weight[i], hn::Mul(off, off)));
  }
  for (int step = 0; step <= search.steps; ++step) {
    const float more = search.first + 0.1f * static_cast<float>(step);
    const VF32 tried = hn::Div(hn::Set(d, more + top), hn::Sub(high, minimum));
    VF32 sum_l = zero, sum_l2 = zero, sum_xl = zero;
    for (size_t i = 0; i < kRangeSize; ++i) {
      code[i] = code_of(x[i], minimum, tried, search.top);
      const VF32 wl = hn::Mul(weight[i], code[i]);
      sum_l = hn::Add(sum_l, wl);
      sum_l2 = hn::Add(sum_l2, hn::Mul(wl, code[i]));
      sum_xl = hn::Add(sum_xl, hn::Mul(wl, x[i]));
    }
    const VF32 det = hn::Sub(hn::Mul(sum_w, sum_l2), hn::Mul(sum_l, sum_l));
    VF32 this_scale = hn::Div(hn::Sub(hn::Mul(sum_w, sum_xl), hn::Mul(sum_x, sum_l)), det);
    VF32 this_min = hn::Div(hn::Sub(hn::Mul(sum_l2, sum_x), hn::Mul(sum_l, sum_xl)), det);
    const auto above = hn::Gt(this_min, zero);
    this_scale = hn::IfThenElse(above, hn::Div(sum_xl, sum_l2), this_scale);
    this_min = hn::IfThenElse(above, zero, this_min);
    VF32 error = zero;
    for (size_t i = 0; i < kRangeSize; ++i) {
      const VF32 off = hn::Sub(hn::Add(hn::Mul(this_scale, code[i]), this_min), x[i]);
      error = hn::Add(error, hn::Mul(weight[i], hn::Mul(off, off)));
    }
    const auto better = hn::And(hn::Gt(det, zero), hn::Lt(error, least));
    least = hn::IfThenElse(better, error, least);
    scale = hn::IfThenElse(better, this_scale, scale);
    factor = hn::IfThenElse(better, tried, factor);
    base = hn::IfThenElse(better, minimum, base);
    minimum = hn::IfThenElse(better, this_min, minimum);
  }
  hn::StoreU(hn::IfThenElse(flat, zero, scale), d, out.scales.data() + lane);
  hn::StoreU(hn::Neg(hn::IfThenElse(flat, low, minimum)), d, out.minima.data() + lane);
  hn::StoreU(hn::IfThenElse(flat, zero, factor), d, out.factors.data() + lane);
  hn::StoreU(hn::IfThenElse(flat, zero, base), d, out.bases.data() + lane);
}

// Stores six bits of each scale and each minimum, in 12 bytes.
HWY_INLINE void put_scales(const std::array<uint8_t, kRanges>& scales,
                           const std::array<uint8_t, kRanges>& minima, uint8_t* to) {
  for (size_t j = 0; j < 4; ++j) {
    to[j] = static_cast<uint8_t>(scales[j] | scales[j + 4] >> 4 << 6);
    to[j + 4] = static_cast<uint8_t>(minima[j] | minima[j + 4] >> 4 << 6);
    to[j + 8] = static_cast<uint8_t>((scales[j + 4] & 0xf) | (minima[j + 4] & 0xf) << 4);
  }
}

// Computes the codes that fit the rounded scales best. If the scale became 0, the codes of the
// search stay.
HWY_INLINE void range_codes(const RangeSearch& search, const float* x, const Ranges& ranges,
                            const std::array<float, kRanges>& scales,
                            const std::array<float, kRanges>& minima, Codes& codes) {
  const F32 d32;
  const hn::Rebind<uint8_t, F32> d8;
  const hn::RebindToSigned<F32> di;
  for (size_t g = 0; g < kRanges; ++g) {
    const bool searched = scales[g] == 0;
    for (size_t i = g * kRangeSize; i < (g + 1) * kRangeSize; i += kLanes) {
      const VF32 value = hn::LoadU(d32, x + i);
      const VF32 code =
          searched
              ? code_of(value, hn::Set(d32, ranges.bases[g]), hn::Set(d32, ranges.factors[g]),
                        search.top)
              : rounded(hn::Div(hn::Add(value, hn::Set(d32, minima[g])), hn::Set(d32, scales[g])),
                        0, search.top);
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, code)), d8, codes.data() + i);
    }
  }
}

// Writes the first 16 bytes of the block, and computes the codes.
HWY_INLINE void encode_ranges(const RangeSearch& search, const float* x, uint8_t* out,
                              Codes& codes) {
  alignas(32) std::array<float, kValues> side_by_side;
  transpose<kRanges>(x, side_by_side.data());
  Ranges ranges;
  for (size_t lane = 0; lane < kRanges; lane += kLanes) {
    search_ranges(search, side_by_side.data(), lane, ranges);
  }
  const float most = std::max(0.0f, *std::max_element(ranges.scales.begin(), ranges.scales.end()));
  const float lowest =
      std::max(0.0f, *std::max_element(ranges.minima.begin(), ranges.minima.end()));
  const float by_scale = most > 0 ? 63.0f / most : 0.0f;
  const float by_minimum = lowest > 0 ? 63.0f / lowest : 0.0f;
  put_f16(out, most / 63.0f);
  put_f16(out + 2, lowest / 63.0f);
  std::array<uint8_t, kRanges> scale_codes, minimum_codes;
  std::array<float, kRanges> scales, minima;
  const float d = f16_of(out), m = f16_of(out + 2);
  for (size_t g = 0; g < kRanges; ++g) {
    const auto code = [](int rounded_code) {
      return std::min<uint8_t>(63, static_cast<uint8_t>(rounded_code));
    };
    scale_codes[g] = code(rounded(by_scale * ranges.scales[g]));
    minimum_codes[g] = code(rounded(by_minimum * ranges.minima[g]));
    scales[g] = d * static_cast<float>(scale_codes[g]);
    minima[g] = m * static_cast<float>(minimum_codes[g]);
  }
  put_scales(scale_codes, minimum_codes, out + 4);
  range_codes(search, x, ranges, scales, minima, codes);
}

// Each 32 bytes hold two groups, the first one in the low nibbles.
HWY_INLINE void put_nibbles(const Codes& codes, uint8_t* to) {
  for (size_t i = 0; i < kValues / 2; ++i) {
    const size_t at = i / 32 * 64 + i % 32;
    to[i] = static_cast<uint8_t>((codes[at] & 0xf) | codes[at + 32] << 4);
  }
}

void encode_q4_k_task(const float* x, size_t blocks, uint8_t* out) {
  Codes codes;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 144) {
    encode_ranges(kSearch4, x, out, codes);
    put_nibbles(codes, out + 16);
  }
}

void encode_q5_k_task(const float* x, size_t blocks, uint8_t* out) {
  Codes codes;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 176) {
    encode_ranges(kSearch5, x, out, codes);
    std::memset(out + 16, 0, 32);
    for (size_t i = 0; i < kValues; ++i) {
      out[16 + i % 32] = static_cast<uint8_t>(out[16 + i % 32] | codes[i] >> 4 << i / 32);
    }
    put_nibbles(codes, out + 48);
  }
}

// -- blocks without a minimum: value = scale * (code - 32)

constexpr size_t kGroups = 16, kGroupSize = 16;

struct Scales {
  alignas(32) std::array<float, kGroups> scales, factors;  // code = round(value * factor)
};

HWY_INLINE VF32 signed_code(VF32 x, VF32 factor) { return rounded(hn::Mul(factor, x), -32, 31); }

HWY_INLINE void search_scales(const float* all, size_t lane, Scales& out) {
  const F32 d;
  const VF32 zero = hn::Zero(d);
  VF32 x[kGroupSize], weight[kGroupSize];
  VF32 most = zero, largest = zero;
  for (size_t i = 0; i < kGroupSize; ++i) {
    x[i] = hn::LoadU(d, all + i * kGroups + lane);
    weight[i] = hn::Mul(x[i], x[i]);
    const auto more = hn::Gt(hn::Abs(x[i]), most);
    most = hn::IfThenElse(more, hn::Abs(x[i]), most);
    largest = hn::IfThenElse(more, x[i], largest);
  }
  VF32 factor = zero, scale = zero, best = zero;
  for (int step = -10; step <= 9; ++step) {
    // Step 0 is tried first. It is the reference of the other steps.
    const bool first = step == -10;
    if (step == 0) continue;
    const float by = first ? -32.0f : -(32.0f + 0.1f * static_cast<float>(step));
    const VF32 tried = hn::Div(hn::Set(d, by), largest);
    VF32 sum_lx = zero, sum_l2 = zero;
    for (size_t i = 0; i < kGroupSize; ++i) {
      const VF32 code = signed_code(x[i], tried);
      sum_lx = hn::Add(sum_lx, hn::Mul(hn::Mul(weight[i], x[i]), code));
      sum_l2 = hn::Add(sum_l2, hn::Mul(hn::Mul(weight[i], code), code));
    }
    const auto some = hn::Gt(sum_l2, zero);
    const auto better = first
                            ? hn::Eq(zero, zero)
                            : hn::And(some, hn::Gt(hn::Mul(sum_lx, sum_lx), hn::Mul(best, sum_l2)));
    const VF32 made = hn::IfThenElseZero(some, hn::Div(sum_lx, sum_l2));
    scale = hn::IfThenElse(better, made, scale);
    best = hn::IfThenElse(better, hn::Mul(made, sum_lx), best);
    factor = hn::IfThenElse(better, tried, factor);
  }
  const auto empty = hn::Lt(most, hn::Set(d, kAllZero));
  hn::StoreU(hn::IfThenElse(empty, zero, scale), d, out.scales.data() + lane);
  hn::StoreU(hn::IfThenElse(empty, zero, factor), d, out.factors.data() + lane);
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

HWY_INLINE void signed_codes(const float* x, const Scales& searched, float d,
                             const uint8_t* scale_codes, Codes& codes) {
  const F32 d32;
  const hn::Rebind<uint8_t, F32> d8;
  const hn::RebindToSigned<F32> di;
  for (size_t g = 0; g < kGroups; ++g) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(scale_codes[g]));
    // ggml leaves the codes of a group of zeros at 0. Their value is 0 in any case.
    const bool empty = searched.scales[g] == 0 && searched.factors[g] == 0;
    for (size_t i = g * kGroupSize; i < (g + 1) * kGroupSize; i += kLanes) {
      const VF32 value = hn::LoadU(d32, x + i);
      VF32 code = scale != 0 ? rounded(hn::Div(value, hn::Set(d32, scale)), -32, 31)
                             : signed_code(value, hn::Set(d32, searched.factors[g]));
      code = hn::Add(code, hn::Set(d32, 32.0f));
      if (scale == 0 && empty) code = hn::Zero(d32);
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, code)), d8, codes.data() + i);
    }
  }
}

void encode_q6_k_task(const float* x, size_t blocks, uint8_t* out) {
  alignas(32) std::array<float, kValues> side_by_side;
  Codes codes;
  Scales searched;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 210) {
    transpose<kGroups>(x, side_by_side.data());
    for (size_t lane = 0; lane < kGroups; lane += kLanes) {
      search_scales(side_by_side.data(), lane, searched);
    }
    float largest = 0;  // by magnitude; the first of equals
    for (const float scale : searched.scales) {
      if (std::abs(scale) > std::abs(largest)) largest = scale;
    }
    if (std::abs(largest) < kAllZero) {
      std::memset(out, 0, 210);
      continue;
    }
    const float factor = -128.0f / largest;
    put_f16(out + 208, 1 / factor);
    for (size_t g = 0; g < kGroups; ++g) {
      out[192 + g] = static_cast<uint8_t>(std::min(127, rounded(factor * searched.scales[g])));
    }
    signed_codes(x, searched, f16_of(out + 208), out + 192, codes);
    put_six_bits(codes, out, out + 128);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(encode_q4_k_task);
HWY_EXPORT(encode_q5_k_task);
HWY_EXPORT(encode_q6_k_task);
}  // namespace

void encode_q4_k(const float* values, size_t blocks, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q4_k_task)(values, blocks, reinterpret_cast<uint8_t*>(out));
}

void encode_q5_k(const float* values, size_t blocks, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q5_k_task)(values, blocks, reinterpret_cast<uint8_t*>(out));
}

void encode_q6_k(const float* values, size_t blocks, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q6_k_task)(values, blocks, reinterpret_cast<uint8_t*>(out));
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
