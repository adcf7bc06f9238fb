// The text decoder of Gemma 4: layers of Gemma's kind whose heads differ between full and sliding
// attention, with embeddings for each layer (layer_inputs.h), shared keys and values
// (shared_layers.h), or experts beside the MLP, where the config has them.
// Source: transformers, models/gemma4/modeling_gemma4.py.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// A member of ModelConfig::numbers: 1 where the MLP of a layer without keys of its own is twice as
// wide as intermediate_size.
inline constexpr const char* kDoubleWideMlp = "use_double_wide_mlp";

// A member of ModelConfig::numbers: the width of the states, which a matrix behind the final norm
// makes; 0 where there is no such matrix (all but EmbeddingGemma 2).
inline constexpr const char* kStateSize = "embedding_dim";

// Returns the width of the MLP of a layer.
int64_t gemma4_mlp_size(const ModelConfig& config, int64_t layer);

Result<Methods> build_gemma4(const ModelConfig& config, const BuildOptions& options);

// Rules for the keys of the text decoder (keys/gemma4_keys.cc).
std::vector<KeyRule> gemma4_rules(const ModelConfig& config, const std::string& prefix);
// Returns the rules without those for experts and for the inputs of layers.
std::vector<KeyRule> gemma4_layer_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
