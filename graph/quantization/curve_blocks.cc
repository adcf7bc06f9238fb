// iq4_nl and iq4_xs: a code of 4 bits stands for one of 16 numbers, which are denser near zero.
// value = scale * number. In iq4_xs the scales of the groups of a block are codes themselves.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/curve_blocks.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/encoding.h"
#include "graph/quantization/block_encoder.h"
#include "graph/quantization/block_search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

constexpr size_t kGroupSize = 32, kSuperValues = 256;
constexpr int kTries = 7;
constexpr const std::array<float, 16>& kNumbers = kIq4Numbers;

// The bound between two numbers. f32 has it exactly, and so the comparison decides as ggml's
// comparison of two distances does.
constexpr float bound(size_t i) { return (kNumbers[i] + kNumbers[i + 1]) / 2; }

// Returns the number that is nearest to each x.
HWY_INLINE VF32 nearest_number(VF32 x) {
  const F32 d;
  VF32 number = hn::Set(d, kNumbers[0]);
  for (size_t i = 0; i < 15; ++i) {
    const auto below = hn::Lt(x, hn::Set(d, bound(i)));
    const VF32 step = hn::Set(d, kNumbers[i + 1] - kNumbers[i]);
    number = hn::Add(number, hn::IfThenZeroElse(below, step));
  }
  return number;
}

HWY_INLINE uint8_t nearest_code(float x) {
  uint8_t code = 0;
  for (size_t i = 0; i < 15; ++i) code = static_cast<uint8_t>(code + (x < bound(i) ? 0 : 1));
  return code;
}

// Returns the best scale of each group; 0 for a group of zeros.
HWY_INLINE void search_curve(const SideBySide<kGroupSize>& groups,
                             std::array<float, kSideGroups>& scales) {
  const F32 d;
  const VF32 zero = hn::Zero(d);
  for (size_t lane = 0; lane < kSideGroups; lane += kLanes) {
    VF32 x[kGroupSize], weight[kGroupSize];
    VF32 most = zero, largest = zero;
    for (size_t i = 0; i < kGroupSize; ++i) {
      x[i] = hn::Load(d, groups.values.data() + i * kSideGroups + lane);
      weight[i] = hn::Load(d, groups.weights.data() + i * kSideGroups + lane);
      const auto more = hn::Gt(hn::Abs(x[i]), most);
      most = hn::IfThenElse(more, hn::Abs(x[i]), most);
      largest = hn::IfThenElse(more, x[i], largest);
    }
    VF32 scale = zero, best = zero;
    // The scale that gives the largest value the first number is tried first.
    for (int step = -kTries - 1; step <= kTries; ++step) {
      const bool first = step == -kTries - 1;
      const VF32 tried =
          first ? hn::Div(hn::Set(d, 1.0f), hn::Div(hn::Neg(largest), hn::Set(d, kNumbers[0])))
                : hn::Div(hn::Set(d, static_cast<float>(step) + kNumbers[0]), largest);
      VF32 sum_qx = zero, sum_q2 = zero;
      for (size_t i = 0; i < kGroupSize; ++i) {
        const VF32 number = nearest_number(hn::Mul(tried, x[i]));
        const VF32 wq = hn::Mul(weight[i], number);
        sum_qx = hn::Add(sum_qx, hn::Mul(wq, x[i]));
        sum_q2 = hn::Add(sum_q2, hn::Mul(wq, number));
      }
      const auto some = hn::Gt(sum_q2, zero);
      const auto better =
          first ? hn::Eq(zero, zero)
                : hn::And(some, hn::Gt(hn::Mul(sum_qx, sum_qx), hn::Mul(best, sum_q2)));
      const VF32 made = hn::IfThenElseZero(some, hn::Div(sum_qx, sum_q2));
      scale = hn::IfThenElse(better, made, scale);
      best = hn::IfThenElse(better, hn::Mul(made, sum_qx), best);
    }
    const auto empty = hn::Lt(most, hn::Set(d, kAllZero));
    hn::StoreU(hn::IfThenElse(empty, zero, scale), d, scales.data() + lane);
  }
}

HWY_INLINE void put_group(const float* x, float factor, uint8_t* to) {
  std::array<uint8_t, kGroupSize> codes;
  for (size_t i = 0; i < kGroupSize; ++i) codes[i] = nearest_code(factor * x[i]);
  put_nibbles32(codes.data(), to);
}

void encode_iq4_nl_task(const BlockRows& rows, uint8_t* out) {
  SideBySide<kGroupSize> side;
  std::array<float, kSideGroups> scales;
  const float* x = rows.values;
  for (size_t row = 0; row < rows.rows; ++row) {
    for (size_t at = 0; at < rows.columns;) {
      const size_t groups = std::min(kSideGroups, (rows.columns - at) / kGroupSize);
      side.load(x, groups);
      if (rows.importance == nullptr) {
        side.weigh_by_squares();
      } else {
        std::array<float, kSideGroups> squares = {};
        for (size_t g = 0; g < groups; ++g) {
          squares[g] = sum_of_squares(x + g * kGroupSize, kGroupSize) * (2.0f / kGroupSize);
        }
        side.load_weights(rows.importance + at, groups);
        for (size_t i = 0; i < side.weights.size(); ++i) {
          const float value = side.values[i];
          side.weights[i] *= std::sqrt(squares[i % kSideGroups] + value * value);
        }
      }
      search_curve(side, scales);
      for (size_t g = 0; g < groups; ++g, x += kGroupSize, at += kGroupSize, out += 18) {
        put_f16(out, scales[g]);
        put_group(x, scales[g] != 0 ? 1 / scales[g] : 0.0f, out + 2);
      }
    }
  }
}

void encode_iq4_xs_task(const BlockRows& rows, uint8_t* out) {
  SideBySide<kGroupSize> side;
  std::array<float, kSideGroups> scales;
  const float* x = rows.values;
  const size_t blocks = rows.rows * rows.columns / kSuperValues;
  const size_t across = rows.columns / kSuperValues;
  for (size_t b = 0; b < blocks; ++b, out += 136) {
    side.load(x, kSideGroups);
    if (rows.importance == nullptr) {
      side.weigh_by_squares();
    } else {
      const float squares = sum_of_squares(x, kSuperValues) * (2.0f / kSuperValues);
      side.weigh(rows.importance + b % across * kSuperValues, squares, kSideGroups);
    }
    search_curve(side, scales);
    float largest = 0;  // by magnitude; the first of equals
    for (const float scale : scales) {
      if (std::abs(scale) > std::abs(largest)) largest = scale;
    }
    const float d = -largest / 32;
    const float inverse = d != 0 ? 1 / d : 0.0f;
    put_f16(out, d);
    std::memset(out + 2, 0, 6);
    for (size_t g = 0; g < kSideGroups; ++g, x += kGroupSize) {
      const int code = std::clamp(rounded(inverse * scales[g]), -32, 31);
      const float scale = d * static_cast<float>(code);
      put_group(x, scale != 0 ? 1 / scale : 0.0f, out + 8 + g * 16);
      const auto bits = static_cast<unsigned>(code + 32);
      out[2 + g / 4] = static_cast<uint8_t>(out[2 + g / 4] | bits >> 4 << 2 * (g % 4));
      out[4 + g / 2] = static_cast<uint8_t>(out[4 + g / 2] | (bits & 0xf) << 4 * (g % 2));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(encode_iq4_nl_task);
HWY_EXPORT(encode_iq4_xs_task);
}  // namespace

void encode_iq4_nl(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_iq4_nl_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void encode_iq4_xs(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_iq4_xs_task)(rows, reinterpret_cast<uint8_t*>(out));
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
