// Shared by Cohere's families: attention and MLP read the same layer norm, which has no bias, and
// are added side by side; RoPE rotates neighbouring dimensions; logits are scaled.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// A member of ModelConfig::numbers: 1 where every head of q and k has a norm of its own.
inline constexpr const char* kCohereQkNorm = "qk_norm";

// Reads logit_scale.
Status read_cohere(const JsonFields& fields, ModelConfig& config);
std::vector<KeyRule> cohere_rules(const ModelConfig& config, const std::string& prefix);
Result<Methods> build_cohere(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
