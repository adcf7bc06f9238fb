// The searches of scales that the encoders of blocks share. Each includes this file once per
// target. ggml searches the scale of a group of values among some candidates. Here a lane computes
// one group in ggml's order, so sums are equal to the bit, and kSideGroups groups are searched side
// by side.

// clang-format off
#if defined(FERRY_BLOCK_SEARCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_SEARCH_INL_H_
#undef FERRY_BLOCK_SEARCH_INL_H_
#else
#define FERRY_BLOCK_SEARCH_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#include "graph/quantization/block_encoder.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kSideGroups = 8;
using F32 = hn::CappedTag<float, kSideGroups>;
using VF32 = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
constexpr float kAllZero = 1e-15f;       // a group whose values are below is all zeros

// Rounds x to an integer. For |x| >= 2^22 the result is that of ggml.
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

// Up to kSideGroups groups of kSize values, side by side: [place in the group][group]. Groups that
// there are not are zeros.
template <size_t kSize>
struct SideBySide {
  alignas(32) std::array<float, kSize * kSideGroups> values, weights;

  void load(const float* x, size_t groups) {
    values.fill(0);
    for (size_t g = 0; g < groups; ++g) {
      for (size_t i = 0; i < kSize; ++i) values[i * kSideGroups + g] = x[g * kSize + i];
    }
  }
  // The weights of errors: importance * sqrt(squares + x * x), where `squares` is common to all.
  void weigh(const float* importance, float squares, size_t groups) {
    load_weights(importance, groups);
    const F32 d;
    for (size_t i = 0; i < weights.size(); i += kLanes) {
      const VF32 x = hn::Load(d, values.data() + i);
      const VF32 size = hn::Sqrt(hn::Add(hn::Set(d, squares), hn::Mul(x, x)));
      hn::Store(hn::Mul(hn::Load(d, weights.data() + i), size), d, weights.data() + i);
    }
  }
  void load_weights(const float* importance, size_t groups) {
    weights.fill(0);
    for (size_t g = 0; g < groups; ++g) {
      for (size_t i = 0; i < kSize; ++i) weights[i * kSideGroups + g] = importance[g * kSize + i];
    }
  }
  // weight = x * x
  void weigh_by_squares() {
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = values[i] * values[i];
  }
  // weight = |x|, and the root of the mean square of the group more if `and_mean`
  void weigh_by_size(bool and_mean) {
    std::array<float, kSideGroups> more = {};
    if (and_mean) {
      for (size_t i = 0; i < weights.size(); ++i) more[i % kSideGroups] += values[i] * values[i];
      for (float& square : more) square = std::sqrt(square / static_cast<float>(kSize));
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = more[i % kSideGroups] + std::abs(values[i]);
    }
  }
  // The sum of the weights of each group.
  void sum_weights(float* sums, size_t groups) const {
    for (size_t g = 0; g < groups; ++g) {
      float sum = 0;
      for (size_t i = 0; i < kSize; ++i) sum += weights[i * kSideGroups + g];
      sums[g] = sum;
    }
  }
};

// The sum of the squares, in order.
HWY_INLINE float sum_of_squares(const float* x, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

// -- value = scale * code - minimum, with codes from 0 to `top`

struct RangeSearch {
  int top;
  float first, delta;  // candidates divide the range by top + first, top + first + delta, ...
  int steps;
  bool absolute;  // errors count as they are, else their squares
};

// Results of a search, for the groups of SideBySide.
struct Ranges {
  alignas(32) std::array<float, kSideGroups> scales, minima;
  // The codes of the search are round((value - base) * factor).
  alignas(32) std::array<float, kSideGroups> factors, bases;
};

HWY_INLINE VF32 range_code(VF32 x, VF32 base, VF32 factor, int top) {
  return rounded(hn::Mul(factor, hn::Sub(x, base)), 0, top);
}

HWY_INLINE VF32 error_of(VF32 difference, bool absolute) {
  return absolute ? hn::Abs(difference) : hn::Mul(difference, difference);
}

template <size_t kSize>
HWY_INLINE void search_ranges(const RangeSearch& search, const SideBySide<kSize>& groups,
                              Ranges& out) {
  const F32 d;
  const VF32 zero = hn::Zero(d);
  const auto top = static_cast<float>(search.top);
  for (size_t lane = 0; lane < kSideGroups; lane += kLanes) {
    // These are no std::array, because its constructor is not compiled for the target, as those of
    // NEON vectors are.
    VF32 x[kSize], weight[kSize], code[kSize];
    for (size_t i = 0; i < kSize; ++i) {
      x[i] = hn::Load(d, groups.values.data() + i * kSideGroups + lane);
      weight[i] = hn::Load(d, groups.weights.data() + i * kSideGroups + lane);
    }
    VF32 low = x[0], high = x[0], sum_w = zero, sum_x = zero;
    for (size_t i = 0; i < kSize; ++i) {
      low = hn::Min(low, x[i]);
      high = hn::Max(high, x[i]);
      sum_w = hn::Add(sum_w, weight[i]);
      sum_x = hn::Add(sum_x, hn::Mul(weight[i], x[i]));
    }
    low = hn::Min(low, zero);
    const auto flat = hn::Eq(low, high);
    VF32 factor = hn::Div(hn::Set(d, top), hn::Sub(high, low)), base = low, minimum = low;
    VF32 scale = hn::Div(hn::Set(d, 1.0f), factor), least = zero;
    for (size_t i = 0; i < kSize; ++i) {
      const VF32 value = hn::Add(hn::Mul(scale, range_code(x[i], base, factor, search.top)), low);
      const VF32 error = error_of(hn::Sub(value, x[i]), search.absolute);
      least = hn::Add(least, hn::Mul(weight[i], error));
    }
    for (int step = 0; step <= search.steps; ++step) {
      const float more = search.first + search.delta * static_cast<float>(step);
      const VF32 tried = hn::Div(hn::Set(d, more + top), hn::Sub(high, minimum));
      VF32 sum_l = zero, sum_l2 = zero, sum_xl = zero;
      for (size_t i = 0; i < kSize; ++i) {
        code[i] = range_code(x[i], minimum, tried, search.top);
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
      for (size_t i = 0; i < kSize; ++i) {
        const VF32 off = hn::Sub(hn::Add(hn::Mul(this_scale, code[i]), this_min), x[i]);
        error = hn::Add(error, hn::Mul(weight[i], error_of(off, search.absolute)));
      }
      const auto better = hn::And(hn::Gt(det, zero), hn::Lt(error, least));
      least = hn::IfThenElse(better, error, least);
      scale = hn::IfThenElse(better, this_scale, scale);
      factor = hn::IfThenElse(better, tried, factor);
      base = hn::IfThenElse(better, minimum, base);
      minimum = hn::IfThenElse(better, this_min, minimum);
    }
    hn::Store(hn::IfThenElse(flat, zero, scale), d, out.scales.data() + lane);
    hn::Store(hn::Neg(hn::IfThenElse(flat, low, minimum)), d, out.minima.data() + lane);
    hn::Store(hn::IfThenElse(flat, zero, factor), d, out.factors.data() + lane);
    hn::Store(hn::IfThenElse(flat, zero, base), d, out.bases.data() + lane);
  }
}

// -- value = scale * code, with codes from -limit to limit - 1

// Results of a search, for the groups of SideBySide.
struct Scales {
  alignas(32) std::array<float, kSideGroups> scales, factors;  // code = round(value * factor)
};

HWY_INLINE VF32 signed_code(VF32 x, VF32 factor, int limit) {
  return rounded(hn::Mul(factor, x), -limit, limit - 1);
}

template <size_t kSize>
HWY_INLINE void search_scales(int limit, const SideBySide<kSize>& groups, Scales& out) {
  const F32 d;
  const VF32 zero = hn::Zero(d);
  for (size_t lane = 0; lane < kSideGroups; lane += kLanes) {
    VF32 x[kSize], weight[kSize];
    VF32 most = zero, largest = zero;
    for (size_t i = 0; i < kSize; ++i) {
      x[i] = hn::Load(d, groups.values.data() + i * kSideGroups + lane);
      weight[i] = hn::Load(d, groups.weights.data() + i * kSideGroups + lane);
      const auto more = hn::Gt(hn::Abs(x[i]), most);
      most = hn::IfThenElse(more, hn::Abs(x[i]), most);
      largest = hn::IfThenElse(more, x[i], largest);
    }
    VF32 factor = zero, scale = zero, best = zero;
    for (int step = -10; step <= 9; ++step) {
      // Step 0 is tried first. It is the reference of the other steps.
      const bool first = step == -10;
      if (step == 0) continue;
      const auto base = static_cast<float>(limit);
      const float by = first ? -base : -(base + 0.1f * static_cast<float>(step));
      const VF32 tried = hn::Div(hn::Set(d, by), largest);
      VF32 sum_lx = zero, sum_l2 = zero;
      for (size_t i = 0; i < kSize; ++i) {
        const VF32 code = signed_code(x[i], tried, limit);
        sum_lx = hn::Add(sum_lx, hn::Mul(hn::Mul(weight[i], x[i]), code));
        sum_l2 = hn::Add(sum_l2, hn::Mul(hn::Mul(weight[i], code), code));
      }
      const auto some = hn::Gt(sum_l2, zero);
      const auto better =
          first ? hn::Eq(zero, zero)
                : hn::And(some, hn::Gt(hn::Mul(sum_lx, sum_lx), hn::Mul(best, sum_l2)));
      const VF32 made = hn::IfThenElseZero(some, hn::Div(sum_lx, sum_l2));
      scale = hn::IfThenElse(better, made, scale);
      best = hn::IfThenElse(better, hn::Mul(made, sum_lx), best);
      factor = hn::IfThenElse(better, tried, factor);
    }
    const auto empty = hn::Lt(most, hn::Set(d, kAllZero));
    hn::Store(hn::IfThenElse(empty, zero, scale), d, out.scales.data() + lane);
    hn::Store(hn::IfThenElse(empty, zero, factor), d, out.factors.data() + lane);
  }
}

// The codes of the search plus `limit`. ggml leaves those of a group of zeros at 0.
HWY_INLINE void searched_codes(const float* x, size_t size, float scale, float factor, int limit,
                               uint8_t* codes) {
  const bool empty = scale == 0 && factor == 0;
  for (size_t i = 0; i < size; ++i) {
    const int code = std::clamp(rounded(factor * x[i]), -limit, limit - 1);
    codes[i] = empty ? 0 : static_cast<uint8_t>(code + limit);
  }
}

// Writes the codes of a group by its rounded scale, plus `limit`.
HWY_INLINE void rounded_codes(const float* x, size_t size, float scale, int limit, uint8_t* codes) {
  const F32 d32;
  const hn::Rebind<uint8_t, F32> d8;
  const hn::RebindToSigned<F32> di;
  const VF32 middle = hn::Set(d32, static_cast<float>(limit));
  for (size_t i = 0; i < size; i += kLanes) {
    const VF32 value = hn::LoadU(d32, x + i);
    const VF32 code = rounded(hn::Div(value, hn::Set(d32, scale)), -limit, limit - 1);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, hn::Add(code, middle))), d8, codes + i);
  }
}

// -- codes of scales

// Fits codes from 0 to `top` to numbers that are not negative, in ggml's order. Returns their
// scale.
HWY_INLINE float fit_scales(int top, const float* x, const float* weights, size_t n,
                            uint8_t* codes) {
  const float most = std::max(0.0f, *std::max_element(x, x + n));
  if (most < kAllZero) {
    std::fill_n(codes, n, uint8_t{0});
    return 0;
  }
  const auto last = static_cast<float>(top);
  const auto error_with = [&](float factor) {
    const float scale = 1 / factor;
    float error = 0;
    for (size_t i = 0; i < n; ++i) {
      const float off = x[i] - scale * static_cast<float>(std::min(top, rounded(factor * x[i])));
      error += weights[i] * off * off;
    }
    return error;
  };
  float factor = last / most, least = error_with(factor);
  for (int step = -4; step <= 4; ++step) {
    if (step == 0) continue;
    const float tried = (0.1f * static_cast<float>(step) + last) / most;
    const float error = error_with(tried);
    if (error < least) least = error, factor = tried;
  }
  float sum_lx = 0, sum_l2 = 0;
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(std::min(top, rounded(factor * x[i])));
    const auto code = static_cast<float>(codes[i]);
    sum_lx += weights[i] * x[i] * code;
    sum_l2 += weights[i] * code * code;
  }
  bool changed = true;
  for (int round = 0; round < 5 && changed; ++round) {
    changed = false;
    for (size_t i = 0; i < n; ++i) {
      const float w = weights[i];
      const auto old = static_cast<float>(codes[i]);
      float lx = sum_lx - w * x[i] * old, l2 = sum_l2 - w * old * old;
      if (!(lx > 0 && l2 > 0)) continue;
      const int code = std::min(top, rounded(x[i] * l2 / lx));
      if (code == codes[i]) continue;
      lx += w * x[i] * static_cast<float>(code);
      l2 += w * static_cast<float>(code) * static_cast<float>(code);
      if (!(lx * lx * sum_l2 > sum_lx * sum_lx * l2)) continue;
      codes[i] = static_cast<uint8_t>(code);
      sum_lx = lx;
      sum_l2 = l2;
      changed = true;
    }
  }
  return sum_l2 > 0 ? sum_lx / sum_l2 : 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#endif  // FERRY_BLOCK_SEARCH_INL_H_
