#include "kernels/common_target.h"

#include "hwy/targets.h"

namespace ferry::kernels {

CommonTarget::CommonTarget() {
  common_ = (hwy::SupportedTargets() & HWY_AVX2) != 0;
  if (common_) hwy::GetChosenTarget().Update(HWY_AVX2);
}

CommonTarget::~CommonTarget() {
  if (common_) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace ferry::kernels
