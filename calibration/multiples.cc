#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "calibration/multiples.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include "calibration/multiples.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::calibration {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <size_t kTerms>
HWY_INLINE void add_terms(const float* factors, const float* x, size_t stride, float* y,
                          size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto sum = hn::LoadU(d, y + i);
    for (size_t k = 0; k < kTerms; ++k) {
      sum = hn::Add(sum, hn::Mul(hn::Set(d, factors[k]), hn::LoadU(d, x + k * stride + i)));
    }
    hn::StoreU(sum, d, y + i);
  }
  for (; i < count; ++i) {
    float sum = y[i];
    for (size_t k = 0; k < kTerms; ++k) sum += factors[k] * x[k * stride + i];
    y[i] = sum;
  }
}

void add_all(const float* factors, const float* x, size_t stride, size_t terms, float* y,
             size_t count) {
  constexpr size_t kAtOnce = 8;
  for (; terms >= kAtOnce; terms -= kAtOnce, factors += kAtOnce, x += kAtOnce * stride) {
    add_terms<kAtOnce>(factors, x, stride, y, count);
  }
  for (; terms > 0; --terms, ++factors, x += stride) add_terms<1>(factors, x, stride, y, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::calibration
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::calibration {
namespace {
HWY_EXPORT(add_all);
}  // namespace

void add_multiple(float factor, const float* x, float* y, size_t count) {
  HWY_DYNAMIC_DISPATCH(add_all)(&factor, x, 0, 1, y, count);
}

void add_multiples(const float* factors, const float* x, size_t stride, size_t terms, float* y,
                   size_t count) {
  HWY_DYNAMIC_DISPATCH(add_all)(factors, x, stride, terms, y, count);
}

}  // namespace ferry::calibration
#endif  // HWY_ONCE
