#include "kernels/common_target.h"

#include "core/highway_targets.h"
// These includes must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common_target.cc"
#include "hwy/foreach_target.h"
// These includes must follow foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

bool is_widest() {
  return HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON;
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::kernels {

HWY_EXPORT(is_widest);

bool uses_all_instructions() { return HWY_DYNAMIC_DISPATCH(is_widest)(); }

CommonTarget::CommonTarget() {
  is_common_ = (hwy::SupportedTargets() & HWY_AVX2) != 0;
  if (is_common_) hwy::GetChosenTarget().Update(HWY_AVX2);
}

CommonTarget::~CommonTarget() {
  if (is_common_) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
