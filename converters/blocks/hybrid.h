// Shared by the hybrid families (Qwen3.5, Qwen3-Next): gated full attention in every few layers,
// Gated DeltaNet in the others, norms that multiply by (1 + w).
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/graph_names.h"
#include "converters/build_options.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// All keys except the input projections of the linear layers, which the families pack differently.
std::vector<KeyRule> hybrid_rules(const ModelConfig& config, const std::string& prefix);
// All keys, with these projections in in_proj_qkv, in_proj_z, in_proj_b and in_proj_a. Serving
// stacks export them packed.
std::vector<KeyRule> separate_hybrid_rules(const ModelConfig& config, const std::string& prefix);

Result<Methods> build_hybrid(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
