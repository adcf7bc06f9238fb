// What the hybrid families (Qwen3.5, Qwen3-Next) share: gated full attention every few layers,
// Gated DeltaNet in the others, norms that multiply by (1 + w).
#pragma once

#include <string>
#include <vector>

#include "converters/family.h"

namespace ferry::converters {

// All keys but the input projections of the linear layers, which the two families pack differently.
std::vector<KeyRule> hybrid_rules(const std::string& prefix, const ModelConfig& config);

Result<graph::Graph> build_hybrid(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
