// Keys of Granite 4, and of Granite 3 with experts: gate and up of an MLP are in one tensor, those
// of all experts too.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Those of Llama, shared_mlp, and of a model with experts block_sparse_moe. All but Mamba.
std::vector<KeyRule> granite_moe_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
