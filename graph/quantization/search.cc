// Scales of least squared error.
//
// The values of a group become whole numbers, with 32767 for the largest magnitude. A candidate
// gives codes q by division by one of a fixed set of scales. For these codes the scale of least
// squared error is sum(x q) / sum(q q), and the error is sum(x x) - sum(x q)^2 / sum(q q). Sums of
// whole numbers are exact. The first candidate of the least error gives the scale, which is rounded
// to the stored type.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/search.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "graph/quantization/candidates.h"
#include "graph/quantization/groups.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::ScalableTag<int32_t>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

constexpr float kWhole = 32767;
// For smaller magnitudes kWhole / magnitude could overflow. Their scale is the smallest without
// clipping.
constexpr float kSmallestSearched = 0x1p-100f;

HWY_INLINE float largest_magnitude(const float* x, size_t n) {
  const F32 d;
  VF32 most = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, x + i)));
  float result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) result = std::max(result, std::fabs(x[i]));
  return result;
}

// ---- groups in lanes

// Lane l holds group l: pair p of its elements is at [p][l]. Elements come in chunks of 8, and
// those after the end of a group are 0.
constexpr size_t kChunk = 8, kPairs = kChunk / 2;

// Returns the place of a chunk of a group before the pairs of a chunk are transposed: in blocks of
// four groups, the 128 bits in which vectors are shuffled.
HWY_INLINE size_t chunk_position(size_t chunk, size_t group) {
  if constexpr (kLanes == 1) return chunk * kChunk;
  return ((chunk * 4 + group % 4) * (kLanes / 4) + group / 4) * kChunk;
}

// Stores value * factor, rounded to nearest even, whose magnitude is at most kWhole.
HWY_INLINE void store_chunk(const float* x, float factor, int16_t* out) {
  const hn::CappedTag<float, kChunk> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<int16_t, decltype(d)> d16;
  constexpr float kShift = 0x1.8p23f;
  for (size_t i = 0; i < kChunk; i += hn::MaxLanes(d)) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    const auto bits = hn::BitCast(d32, hn::Add(scaled, hn::Set(d, kShift)));
    const auto whole = hn::Sub(bits, hn::Set(d32, std::bit_cast<int32_t>(kShift)));
    hn::StoreU(hn::DemoteTo(d16, whole), d16, out + i);
  }
}

HWY_INLINE void store_group(const float* x, size_t size, float factor, size_t group,
                            int16_t* pairs) {
  size_t i = 0;
  for (; i + kChunk <= size; i += kChunk) {
    store_chunk(x + i, factor, pairs + chunk_position(i / kChunk, group));
  }
  if (i == size) return;
  float rest[kChunk] = {};
  std::copy(x + i, x + size, rest);
  store_chunk(rest, factor, pairs + chunk_position(i / kChunk, group));
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_chunks(int16_t*, size_t) {}
#else
HWY_INLINE void transpose_chunks(int16_t* pairs, size_t chunks) {
  const hn::ScalableTag<int16_t> d16;
  const I32 d;
  const hn::ScalableTag<int64_t> d64;
  for (size_t c = 0; c < chunks; ++c) {
    int16_t* rows = pairs + c * kPairs * kLanes * 2;
    VI32 v[kPairs];
    for (size_t i = 0; i < kPairs; ++i) {
      v[i] = hn::BitCast(d, hn::LoadU(d16, rows + i * kLanes * 2));
    }
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v[0], v[1]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v[2], v[3]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v[0], v[1]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v[2], v[3]));
    v[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
    v[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
    v[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
    v[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
    for (size_t i = 0; i < kPairs; ++i) {
      hn::StoreU(hn::BitCast(d16, v[i]), d16, rows + i * kLanes * 2);
    }
  }
}
#endif

// ---- sums

// Computes, for each multiplier, the sums of x q and of q q of `count` pairs.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE int32_t fixed_point_product(int32_t a, int32_t b) { return (a * b + 0x4000) >> 15; }

void sum_products(const Candidates& set, const Steps& steps, const int16_t* pairs, size_t count,
                  VI32* xq_out, VI32* qq_out) {
  for (size_t m = 0; m < kMultipliers; ++m) {
    int32_t xq = 0, qq = 0;
    for (size_t i = 0; i < 2 * count; ++i) {
      const int32_t part = fixed_point_product(pairs[i], steps.fraction);
      const int32_t q =
          std::clamp<int32_t>(fixed_point_product(part, steps.multipliers[m]), set.low, set.high);
      xq += pairs[i] * q;
      qq += q * q;
    }
    xq_out[m] = hn::Set(I32(), xq);
    qq_out[m] = hn::Set(I32(), qq);
  }
}
#else
// Unclamped explains kFree and kAbove.
template <size_t kFree, size_t kAbove>
HWY_INLINE void sum_products(const Candidates& set, const Steps& steps, const int16_t* pairs,
                             size_t count, VI32* xq_out, VI32* qq_out) {
  const I32 d;
  const hn::ScalableTag<int16_t> d16;
  const auto low = hn::Set(d16, set.low), high = hn::Set(d16, set.high);
  const auto fraction = hn::Set(d16, steps.fraction);
  hn::Vec<decltype(d16)> multipliers[kMultipliers];
  // Some targets have the sum of a pair in two parts.
  VI32 xq[kMultipliers], xq_rest[kMultipliers], qq[kMultipliers], qq_rest[kMultipliers];
  for (size_t m = 0; m < kMultipliers; ++m) {
    multipliers[m] = hn::Set(d16, steps.multipliers[m]);
    xq[m] = xq_rest[m] = qq[m] = qq_rest[m] = hn::Zero(d);
  }
  for (size_t p = 0; p < count; ++p) {
    const auto x = hn::LoadU(d16, pairs + p * kLanes * 2);
    const auto part = hn::MulFixedPoint15(x, fraction);
    for (size_t m = 0; m < kMultipliers; ++m) {
      auto q = hn::MulFixedPoint15(part, multipliers[m]);
      if (m >= kFree) q = hn::Min(q, high);
      if (m >= kFree + kAbove) q = hn::Max(q, low);
      xq[m] = hn::ReorderWidenMulAccumulate(d, x, q, xq[m], xq_rest[m]);
      qq[m] = hn::ReorderWidenMulAccumulate(d, q, q, qq[m], qq_rest[m]);
    }
  }
  for (size_t m = 0; m < kMultipliers; ++m) {
    xq_out[m] = hn::RearrangeToOddPlusEven(xq[m], xq_rest[m]);
    qq_out[m] = hn::RearrangeToOddPlusEven(qq[m], qq_rest[m]);
  }
}

HWY_INLINE void sum_products(const Candidates& set, const Steps& steps, const int16_t* pairs,
                             size_t count, VI32* xq_out, VI32* qq_out) {
  // This checks the numbers for groups of up to 64 values.
  static_assert(unclamped(kCandidates4, kSteps4[0]) == Unclamped{2, 1});
  static_assert(unclamped(kCandidates4, kSteps4[1]) == Unclamped{2, 2});
  const Unclamped known = unclamped(set, steps);
  if (known == Unclamped{2, 1}) {
    return sum_products<2, 1>(set, steps, pairs, count, xq_out, qq_out);
  }
  if (known == Unclamped{2, 2}) {
    return sum_products<2, 2>(set, steps, pairs, count, xq_out, qq_out);
  }
  sum_products<0, 0>(set, steps, pairs, count, xq_out, qq_out);
}
#endif

// The codes of least error of each group so far, which have the largest xq^2 / qq.
struct Best {
  VF32 xq, qq;
  VF32 squared;  // xq^2

  HWY_INLINE void consider(VF32 new_xq, VF32 new_qq) {
    const VF32 new_squared = hn::Mul(new_xq, new_xq);
    const auto better = hn::Gt(hn::Mul(new_squared, qq), hn::Mul(squared, new_qq));
    xq = hn::IfThenElse(better, new_xq, xq);
    qq = hn::IfThenElse(better, new_qq, qq);
    squared = hn::IfThenElse(better, new_squared, squared);
  }
};

HWY_INLINE void try_steps(const Candidates& set, const Steps& steps, const int16_t* pairs,
                          size_t count, Best& best) {
  const F32 d;
  VF32 xq[kMultipliers], qq[kMultipliers];
  for (size_t m = 0; m < kMultipliers; ++m) xq[m] = qq[m] = hn::Zero(d);
  for (size_t p = 0; p < count; p += set.tile / 2) {
    VI32 tile_xq[kMultipliers], tile_qq[kMultipliers];
    const size_t tile = std::min(set.tile / 2, count - p);
    sum_products(set, steps, pairs + p * kLanes * 2, tile, tile_xq, tile_qq);
    for (size_t m = 0; m < kMultipliers; ++m) {
      xq[m] = hn::Add(xq[m], hn::ConvertTo(d, tile_xq[m]));
      qq[m] = hn::Add(qq[m], hn::ConvertTo(d, tile_qq[m]));
    }
  }
  for (size_t m = 0; m < kMultipliers; ++m) best.consider(xq[m], qq[m]);
}

// ---- scales

HWY_INLINE VF32 round_to_bf16(VF32 value) {
  const F32 d;
  const hn::RebindToUnsigned<F32> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto up = hn::Add(hn::Add(bits, hn::Set(d32, 0x7fffu)), odd);
  return hn::BitCast(d, hn::And(up, hn::Set(d32, 0xffff0000u)));
}

HWY_INLINE VF32 scales_of(const Candidates& set, DType scale_dtype, const Best& best, VF32 most) {
  const F32 d;
  const VF32 least_squares = hn::Mul(hn::Div(best.xq, best.qq), hn::Div(most, hn::Set(d, kWhole)));
  const VF32 unclipped = hn::Div(most, hn::Set(d, static_cast<float>(-set.low)));
  const auto searched = hn::Ge(most, hn::Set(d, kSmallestSearched));
  VF32 scale = hn::IfThenElse(searched, least_squares, unclipped);
  if (scale_dtype == DType::kBF16) scale = round_to_bf16(scale);
  scale = hn::Max(scale, hn::Set(d, kSmallestScale));
  const auto zero = hn::Eq(most, hn::Zero(d));
  return hn::IfThenElse(zero, hn::Set(d, kZeroGroupScale), scale);
}

// Searches at most kLanes groups. `pairs` has the size of the chunks of kLanes groups.
void search_lanes(const Candidates& set, DType scale_dtype, const Groups& groups, int16_t* pairs,
                  float* scales) {
  const F32 d;
  const size_t chunks = (groups.size + kChunk - 1) / kChunk;
  float most[kLanes] = {};
  if (groups.count < kLanes) std::fill_n(pairs, chunks * kChunk * kLanes, int16_t{0});
  for (size_t g = 0; g < groups.count; ++g) {
    const float* x = groups.values + g * groups.size;
    most[g] = largest_magnitude(x, groups.size);
    const float factor = most[g] < kSmallestSearched ? 0.0f : kWhole / most[g];
    store_group(x, groups.size, factor, g, pairs);
  }
  transpose_chunks(pairs, chunks);
  Best best{hn::Zero(d), hn::Set(d, 1.0f), hn::Zero(d)};
  for (const Steps& steps : set.steps) try_steps(set, steps, pairs, chunks * kPairs, best);
  float chosen[kLanes];
  hn::StoreU(scales_of(set, scale_dtype, best, hn::LoadU(d, most)), d, chosen);
  std::copy_n(chosen, groups.count, scales);
}

void search_task(const Candidates& set, DType scale_dtype, const Groups& groups, float* scales) {
  const size_t chunks = (groups.size + kChunk - 1) / kChunk;
  std::vector<int16_t> pairs(chunks * kChunk * kLanes);
  for (size_t g = 0; g < groups.count; g += kLanes) {
    const Groups part{groups.values + g * groups.size, groups.size,
                      std::min(kLanes, groups.count - g)};
    search_lanes(set, scale_dtype, part, pairs.data(), scales + g);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(search_task);
}  // namespace

void search_scales(int bits, DType scale_dtype, const Groups& groups, float* scales) {
  HWY_DYNAMIC_DISPATCH(search_task)
  (candidates(bits, groups.size), scale_dtype, groups, scales);
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
