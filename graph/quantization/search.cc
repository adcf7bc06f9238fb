// Scales of least squared error.
//
// A group is taken as whole numbers, the largest magnitude as 32767. A candidate gives codes q that
// divide it by one of a fixed set of scales; for these codes the scale of least squared error is
// sum(x q) / sum(q q), and the error is sum(x x) - sum(x q)^2 / sum(q q). All sums are exact. The
// first candidate of the least error gives the scale, which is rounded to the stored type.
#include "graph/quantization/targets.h"
// After the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/search.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "graph/quantization/candidates.h"
#include "graph/quantization/groups.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
constexpr size_t kLanes = hn::MaxLanes(F32());
constexpr float kWhole = 32767;
// Below, kWhole / magnitude could overflow; the scale is the smallest without clipping.
constexpr float kSmallestSearched = 0x1p-100f;

HWY_INLINE float largest_magnitude(const float* x, size_t n) {
  const F32 d;
  auto most = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, x + i)));
  float result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) result = std::max(result, std::fabs(x[i]));
  return result;
}

// x * factor, rounded to nearest even.
HWY_INLINE void to_whole(const float* x, size_t n, float factor, int16_t* out) {
  const F32 d;
  const hn::Rebind<int16_t, F32> d16;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(scaled)), d16, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<int16_t>(std::nearbyintf(x[i] * factor));
}

// Lane l holds group l: pair p of its elements is at [p][l].
struct Sums {
  int32_t xq[kMultipliers][kLanes];
  int32_t qq[kMultipliers][kLanes];
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE int32_t fixed_point_product(int32_t a, int32_t b) { return (a * b + 0x4000) >> 15; }

void sum_products(const Candidates& set, const Steps& steps, const int16_t* pairs, size_t count,
                  Sums& sums) {
  for (size_t m = 0; m < kMultipliers; ++m) {
    sums.xq[m][0] = sums.qq[m][0] = 0;
    for (size_t i = 0; i < 2 * count; ++i) {
      const int32_t part = fixed_point_product(pairs[i], steps.fraction);
      const int32_t q =
          std::clamp<int32_t>(fixed_point_product(part, steps.multipliers[m]), set.low, set.high);
      sums.xq[m][0] += pairs[i] * q;
      sums.qq[m][0] += q * q;
    }
  }
}
#else
void sum_products(const Candidates& set, const Steps& steps, const int16_t* pairs, size_t count,
                  Sums& sums) {
  const hn::ScalableTag<int32_t> d;
  const hn::ScalableTag<int16_t> d16;
  using Sum = hn::Vec<decltype(d)>;
  const auto low = hn::Set(d16, set.low), high = hn::Set(d16, set.high);
  const auto fraction = hn::Set(d16, steps.fraction);
  hn::Vec<decltype(d16)> multipliers[kMultipliers];
  // Some targets have the sum of a pair in two parts.
  Sum xq[kMultipliers], xq_rest[kMultipliers], qq[kMultipliers], qq_rest[kMultipliers];
  for (size_t m = 0; m < kMultipliers; ++m) {
    multipliers[m] = hn::Set(d16, steps.multipliers[m]);
    xq[m] = xq_rest[m] = qq[m] = qq_rest[m] = hn::Zero(d);
  }
  for (size_t p = 0; p < count; ++p) {
    const auto x = hn::LoadU(d16, pairs + p * kLanes * 2);
    const auto part = hn::MulFixedPoint15(x, fraction);
    for (size_t m = 0; m < kMultipliers; ++m) {
      const auto q = hn::Max(hn::Min(hn::MulFixedPoint15(part, multipliers[m]), high), low);
      xq[m] = hn::ReorderWidenMulAccumulate(d, x, q, xq[m], xq_rest[m]);
      qq[m] = hn::ReorderWidenMulAccumulate(d, q, q, qq[m], qq_rest[m]);
    }
  }
  for (size_t m = 0; m < kMultipliers; ++m) {
    hn::StoreU(hn::RearrangeToOddPlusEven(xq[m], xq_rest[m]), d, sums.xq[m]);
    hn::StoreU(hn::RearrangeToOddPlusEven(qq[m], qq_rest[m]), d, sums.qq[m]);
  }
}
#endif

// Of each group so far the codes of least error: the largest xq^2 / qq.
struct Best {
  double xq[kLanes] = {};
  double qq[kLanes];

  HWY_INLINE void consider(const double* new_xq, const double* new_qq) {
    for (size_t l = 0; l < kLanes; ++l) {
      const bool better = new_xq[l] * new_xq[l] * qq[l] > xq[l] * xq[l] * new_qq[l];
      xq[l] = better ? new_xq[l] : xq[l];
      qq[l] = better ? new_qq[l] : qq[l];
    }
  }
};

HWY_INLINE void try_steps(const Candidates& set, const Steps& steps, const int16_t* pairs,
                          size_t count, Best& best) {
  double xq[kMultipliers][kLanes] = {}, qq[kMultipliers][kLanes] = {};
  for (size_t p = 0; p < count; p += set.tile / 2) {
    Sums sums;
    sum_products(set, steps, pairs + p * kLanes * 2, std::min(set.tile / 2, count - p), sums);
    for (size_t m = 0; m < kMultipliers; ++m) {
      for (size_t l = 0; l < kLanes; ++l) {
        xq[m][l] += sums.xq[m][l];
        qq[m][l] += sums.qq[m][l];
      }
    }
  }
  for (size_t m = 0; m < kMultipliers; ++m) best.consider(xq[m], qq[m]);
}

HWY_INLINE float stored_scale(DType dtype, float scale) {
  if (dtype == DType::kBF16) scale = bf16_to_f32(f32_to_bf16(scale));
  return std::max(scale, kSmallestScale);
}

// At most kLanes groups. `row` has room for the elements of one group in pairs, `pairs` for those
// of kLanes groups.
void search_lanes(const Candidates& set, DType scale_dtype, const Groups& groups, int16_t* row,
                  int16_t* pairs, float* scales) {
  const size_t count = (groups.size + 1) / 2;
  float most[kLanes] = {};
  if (groups.count < kLanes) std::fill_n(pairs, count * kLanes * 2, int16_t{0});
  for (size_t g = 0; g < groups.count; ++g) {
    const float* x = groups.values + g * groups.size;
    most[g] = largest_magnitude(x, groups.size);
    to_whole(x, groups.size, most[g] < kSmallestSearched ? 0.0f : kWhole / most[g], row);
    for (size_t p = 0; p < count; ++p) {
      std::memcpy(pairs + (p * kLanes + g) * 2, row + 2 * p, 2 * sizeof(int16_t));
    }
  }
  Best best;
  std::fill_n(best.qq, kLanes, 1.0);
  for (const Steps& steps : set.steps) try_steps(set, steps, pairs, count, best);
  for (size_t g = 0; g < groups.count; ++g) {
    const float scale = most[g] < kSmallestSearched
                            ? most[g] / static_cast<float>(-set.low)
                            : static_cast<float>(best.xq[g] / best.qq[g]) * (most[g] / kWhole);
    scales[g] = most[g] == 0 ? kZeroGroupScale : stored_scale(scale_dtype, scale);
  }
}

void search_task(const Candidates& set, DType scale_dtype, const Groups& groups, float* scales) {
  const size_t row = (groups.size + 1) / 2 * 2;
  std::vector<int16_t> scratch(row * (kLanes + 1));
  for (size_t g = 0; g < groups.count; g += kLanes) {
    const Groups part{groups.values + g * groups.size, groups.size,
                      std::min(kLanes, groups.count - g)};
    search_lanes(set, scale_dtype, part, scratch.data(), scratch.data() + row, scales + g);
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
  (bits == 4 ? kCandidates4 : kCandidates8, scale_dtype, groups, scales);
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
