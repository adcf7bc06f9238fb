// Shared by the Gemma families: multipliers, and the keys and the graph of Gemma 2 and 3, whose
// layers have norms that multiply by (1 + w) before and after both blocks.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// A member of ModelConfig::numbers: 1 where every head of q and k passes a norm, as in Gemma 3.
inline constexpr const char* kGemmaQkNorm = "qk_norm";

// Sets the multiplier of the embeddings, sqrt(hidden_size). Reads no key.
Status read_gemma_scalars(const JsonFields& fields, ModelConfig& config);
// Reads query_pre_attn_scalar: scores are divided by its square root.
Status read_query_scalar(const JsonFields& fields, ModelConfig& config);

// The rules of Gemma 2 and 3: matrices, biases that the config asks for, norms.
std::vector<KeyRule> gemma_rules(const ModelConfig& config, const std::string& prefix);
Result<Methods> build_gemma(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
