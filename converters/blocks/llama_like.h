// What families share that are Llama but for numbers of their config: multipliers, layers without
// RoPE.
#pragma once

#include <vector>

#include "converters/family.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// All keys of the model: matrices, norms, biases that the config asks for, the head.
std::vector<KeyRule> llama_rules(const ModelConfig& config);
// Attention in every layer, with the biases that the config asks for.
Result<graph::Graph> build_llama(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
