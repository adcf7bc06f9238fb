// Keys of Granite 4, and of Granite 3 with experts: gate and up of an MLP are in one tensor, and so
// are those of all experts.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Rules for the keys of Llama, for shared_mlp and, in a model with experts, for block_sparse_moe.
// The keys of Mamba layers are not among them.
std::vector<KeyRule> granite_moe_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
