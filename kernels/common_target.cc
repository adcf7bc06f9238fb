#include "kernels/common_target.h"

#include "hwy/targets.h"

namespace ferry::kernels {

CommonTarget::CommonTarget() {
  is_common_ = (hwy::SupportedTargets() & HWY_AVX2) != 0;
  if (is_common_) hwy::GetChosenTarget().Update(HWY_AVX2);
}

CommonTarget::~CommonTarget() {
  if (is_common_) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace ferry::kernels
