// Shared by families with Llama's architecture that differ only in config values: multipliers,
// layers without RoPE.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/graph_names.h"
#include "converters/build_options.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Matrices, norms, and the biases that the config asks for.
std::vector<KeyRule> llama_rules(const ModelConfig& config, const std::string& prefix);
// Attention in every layer, with the biases that the config asks for.
Result<Methods> build_llama(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
