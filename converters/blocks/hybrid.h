// Parts that the hybrid families (Qwen3.5, Qwen3-Next) share. Every few layers have gated full
// attention, the others have Gated DeltaNet. Norms multiply by (1 + w).
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns rules for all keys except the input projections of the linear layers, which the families
// pack differently.
std::vector<KeyRule> hybrid_rules(const ModelConfig& config, const std::string& prefix);
// Returns rules for all keys, where the input projections of the linear layers are in_proj_qkv,
// in_proj_z, in_proj_b and in_proj_a. Serving stacks export them packed.
std::vector<KeyRule> separate_hybrid_rules(const ModelConfig& config, const std::string& prefix);

Result<Methods> build_hybrid(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
