// What Gemma 2 and Gemma 3 share: norms by (1 + w) before and after both blocks of a layer.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// All keys below `prefix`: matrices, biases that the config asks for, norms.
std::vector<KeyRule> gemma_rules(const std::string& prefix, const ModelConfig& config);

}  // namespace ferry::converters
