// The rules of MobileNet-v5 towers of timm.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the rules of a tower whose keys begin with `tower`, to names under `vision.`.
std::vector<KeyRule> mobilenet_rules(const std::string& tower, const VisionConfig& vision);

}  // namespace ferry::converters
