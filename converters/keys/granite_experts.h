// Keys of the MLP of Granite 4: gate and up are in one tensor, those of all experts too.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// shared_mlp, and of a model with experts block_sparse_moe, below `layer`, which ends with a dot.
std::vector<KeyRule> granite_expert_rules(const std::string& layer, const ModelConfig& config);

}  // namespace ferry::converters
