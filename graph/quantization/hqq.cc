// Half-quadratic refinement of scales, as hqq_scale_only of torchao (quant_primitives.py) computes
// it on CPU, to the bit: codes are rounded values / scale, the next scale is sum(w q) / sum(q q),
// and the sums have the order of torch.sum over the innermost dimension.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/hqq.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "graph/quantization/groups.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

// Sums the elements of groups in the order of torch, with a group in each lane. Element i goes to
// sum i mod 32. Whole blocks of 32 are added up in levels, where 16 or more sums of one level
// become one of the next. The rest after the last whole 8 is added first, then the sums, lower ones
// first.
// the next; what is left after the last whole 8 is added first, then the sums, lower ones first.
constexpr size_t kSums = 32, kColumns = 8, kLevels = 4;

class LaneSums {
 public:
  explicit LaneSums(size_t size) {
    const size_t blocks = size / kSums;
    const size_t log2 = blocks > 1 ? static_cast<size_t>(std::bit_width(blocks - 1)) : 0;
    power_ = std::max<size_t>(4, log2 / kLevels);
    levels_ = blocks >> power_ == 0 ? 1 : kLevels;
  }

  HWY_INLINE void clear() {
    rest_ = hn::Zero(F32());
    for (size_t level = 0; level < levels_; ++level) clear(level);
  }
  HWY_INLINE void add(size_t i, VF32 value) { sums_[0][i] = hn::Add(sums_[0][i], value); }
  HWY_INLINE void add_rest(VF32 value) { rest_ = hn::Add(rest_, value); }
  // Is called after `blocks` blocks.
  HWY_INLINE void carry(size_t blocks) {
    const size_t mask = (size_t{1} << power_) - 1;
    for (size_t level = 1; level < levels_; ++level) {
      if ((blocks >> ((level - 1) * power_) & mask) != 0) return;
      raise(level - 1, level);
      clear(level - 1);
    }
  }
  // Is called after the last whole block.
  HWY_INLINE void join_levels() {
    for (size_t level = 1; level < levels_; ++level) raise(level, 0);
  }
  HWY_INLINE VF32 total() const {
    VF32 sum = rest_;
    for (size_t i = 0; i < kColumns; ++i) {
      const VF32 column = hn::Add(hn::Add(sums_[0][i], sums_[0][i + 8]), sums_[0][i + 16]);
      sum = hn::Add(sum, hn::Add(column, sums_[0][i + 24]));
    }
    return sum;
  }

 private:
  HWY_INLINE void clear(size_t level) {
    for (VF32& sum : sums_[level]) sum = hn::Zero(F32());
  }
  HWY_INLINE void raise(size_t from, size_t to) {
    for (size_t i = 0; i < kSums; ++i) sums_[to][i] = hn::Add(sums_[to][i], sums_[from][i]);
  }

  size_t power_, levels_;
  VF32 rest_;
  VF32 sums_[kLevels][kSums];
};

struct TwoSums {
  explicit TwoSums(size_t size) : a(size), b(size) {}
  LaneSums a, b;
};

// Adds the terms that `terms` computes of each element.
template <class Terms>
HWY_INLINE void sum_terms(size_t size, const Terms& terms, TwoSums& sums) {
  sums.a.clear();
  sums.b.clear();
  size_t i = 0;
  for (size_t block = 1; i + kSums <= size; ++block) {
    for (size_t k = 0; k < kSums; ++k, ++i) {
      const auto [a, b] = terms(i);
      sums.a.add(k, a);
      sums.b.add(k, b);
    }
    sums.a.carry(block);
    sums.b.carry(block);
  }
  sums.a.join_levels();
  sums.b.join_levels();
  for (; i < size; ++i) {
    const auto [a, b] = terms(i);
    const bool column = i / kColumns < size / kColumns;
    column ? sums.a.add(i % kColumns, a) : sums.a.add_rest(a);
    column ? sums.b.add(i % kColumns, b) : sums.b.add_rest(b);
  }
}

struct Terms {
  VF32 a, b;
};

// Element i of the group in lane l is at x[i * kLanes + l].
struct Elements {
  const float* x;
  HWY_INLINE Terms operator()(size_t i) const {
    const VF32 v = hn::Load(F32(), x + i * kLanes);
    return {v, v};
  }
};

struct CodeProducts {
  const float* x;
  VF32 scale;
  float low, high;
  HWY_INLINE Terms operator()(size_t i) const {
    const F32 d;
    const VF32 v = hn::Load(d, x + i * kLanes);
    const VF32 q =
        hn::Min(hn::Max(hn::Round(hn::Div(v, scale)), hn::Set(d, low)), hn::Set(d, high));
    return {hn::Mul(v, q), hn::Mul(q, q)};
  }
};

void refine(const Refinement& r, size_t size, const float* x, TwoSums& sums, float* scales) {
  const F32 d;
  const float high = r.bits == 4 ? 7.0f : 127.0f, low = -high - 1;
  const VF32 smallest = hn::Set(d, kZeroGroupScale);
  VF32 most = hn::Zero(d);
  for (size_t i = 0; i < size; ++i) most = hn::Max(most, hn::Abs(hn::Load(d, x + i * kLanes)));
  VF32 scale = hn::Max(hn::Div(most, hn::Set(d, -low)), smallest);
  for (int round = 0; round < r.rounds; ++round) {
    sum_terms(size, CodeProducts{x, scale, low, high}, sums);
    const VF32 qq = sums.b.total();
    const auto any = hn::Gt(qq, hn::Zero(d));
    const VF32 ratio = hn::Div(sums.a.total(), hn::IfThenElse(any, qq, hn::Set(d, 1.0f)));
    // An overflowed sum is no improvement. The reference does not check for it.
    const auto better = hn::And(any, hn::Lt(ratio, hn::Set(d, HUGE_VALF)));
    const VF32 next = hn::Max(hn::IfThenElse(better, ratio, scale), smallest);
    const VF32 change = hn::Div(hn::Abs(hn::Sub(next, scale)), scale);
    const float largest = hn::GetLane(hn::MaxOfLanes(d, change));
    if (largest == 0) break;  // then it is 0 in all later rounds too
    if (r.changes != nullptr) r.changes[round] = std::max(r.changes[round], largest);
    scale = next;
  }
  hn::StoreU(scale, d, scales);
}

// Loads up to kLanes groups into lanes. Missing groups are zeros.
HWY_INLINE void load_lanes(const Groups& groups, size_t first, float* x) {
  const size_t count = std::min(kLanes, groups.count - first);
  if (count < kLanes) std::fill_n(x, groups.size * kLanes, 0.0f);
  for (size_t g = 0; g < count; ++g) {
    const float* group = groups.values + (first + g) * groups.size;
    for (size_t i = 0; i < groups.size; ++i) x[i * kLanes + g] = group[i];
  }
}

void hqq_task(const Refinement& refinement, const Groups& groups, float* scales) {
  const auto x = hwy::AllocateAligned<float>(groups.size * kLanes);
  TwoSums sums(groups.size);
  float lanes[kLanes];
  for (size_t g = 0; g < groups.count; g += kLanes) {
    load_lanes(groups, g, x.get());
    refine(refinement, groups.size, x.get(), sums, lanes);
    std::copy_n(lanes, std::min(kLanes, groups.count - g), scales + g);
  }
}

void sum_task(const Groups& groups, float* out) {
  const F32 d;
  const auto x = hwy::AllocateAligned<float>(groups.size * kLanes);
  TwoSums sums(groups.size);
  float lanes[kLanes];
  for (size_t g = 0; g < groups.count; g += kLanes) {
    load_lanes(groups, g, x.get());
    sum_terms(groups.size, Elements{x.get()}, sums);
    hn::StoreU(sums.a.total(), d, lanes);
    std::copy_n(lanes, std::min(kLanes, groups.count - g), out + g);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(hqq_task);
HWY_EXPORT(sum_task);
}  // namespace

void hqq_scales(const Refinement& refinement, const Groups& groups, float* scales) {
  HWY_DYNAMIC_DISPATCH(hqq_task)(refinement, groups, scales);
}

void torch_sums(const Groups& groups, float* sums) { HWY_DYNAMIC_DISPATCH(sum_task)(groups, sums); }

}  // namespace ferry::graph
#endif  // HWY_ONCE
