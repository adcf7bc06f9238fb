// The keys of Gemma 3n's text decoder.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

std::vector<KeyRule> gemma3n_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
