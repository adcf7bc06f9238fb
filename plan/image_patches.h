// settle_patches() sets the length of the lists of patches that a vision tower takes, which the
// image processor of a checkpoint decides and its config does not state.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "core/result.h"
#include "packer/bundle_plan.h"

namespace ferry::plan {

// `copied` are the files of the checkpoint `name`. Without a processor the length is that of the
// defaults of its class. kBadInput for a processor whose patches or squares of patches are not
// those of the tower; kUnsupported for a tower without positions for a picture of that length;
// errors as for media::settings_from(). Other towers stay as they are.
Status settle_patches(const std::vector<packer::CopiedFile>& copied, const std::string& name,
                      converters::ModelConfig& config);

}  // namespace ferry::plan
