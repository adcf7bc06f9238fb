// Attention in families whose last layers have no keys and values of their own: they attend to
// those of the last earlier layer of their kind (Gemma 3n, Gemma 4). Values are divided by their
// root mean square. Source: transformers, models/gemma3n/modeling_gemma3n.py and
// models/gemma4/modeling_gemma4.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "converters/blocks/attention.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Members of ModelConfig::numbers: how many layers, the last ones, attend to keys and values of an
// earlier one; and 1 where the values of full attention are its keys before their norm.
inline constexpr const char* kSharedLayers = "num_kv_shared_layers";
inline constexpr const char* kKeysAreValues = "attention_k_eq_v";

// Returns the first layer that has neither keys nor values of its own; num_layers if all have them.
int64_t first_shared_layer(const ModelConfig& config);
// Returns an error unless every layer without keys has one of its kind before it that has them.
Status check_shared_layers(const ModelConfig& config);

// Whether the layer has a matrix for its values.
bool has_value_matrix(const ModelConfig& config, int64_t layer);

// The keys and values that later layers attend to, by the kind of the layers.
using HeldByType = std::map<LayerType, HeldRows>;

// Builds causal attention of layer `layer`: norms of the heads of queries and keys, RoPE, biases as
// config.attention_bias says. x and the result are [1,T,hidden_size].
ValueId shared_layer_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                               HeldByType& held);

// Rules for the matrices of keys and values, for the norm of keys, and for their biases
// (keys/shared_layer_keys.cc). Those that a checkpoint holds for other layers are dropped.
std::vector<KeyRule> shared_layer_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
