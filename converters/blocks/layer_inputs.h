// Embeddings for each layer (Gemma 3n, Gemma 4): every token has a row for every layer in a second
// table, to which a projection of its usual embedding is added. A gate mixes it into the layer.
// Source: transformers, models/gemma3n/modeling_gemma3n.py and models/gemma4/modeling_gemma4.py.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Members of ModelConfig::numbers, which have the names of the config's keys: the width of a row
// for one layer, and the rows of the table. Without rows (EmbeddingGemma 2) the projection is all.
inline constexpr const char* kLayerInputSize = "hidden_size_per_layer_input";
inline constexpr const char* kLayerVocab = "vocab_size_per_layer_input";

// Whether the text decoder of a vision-language model takes tokens beside their embeddings.
bool takes_layer_tokens(const ModelConfig& config);

// Returns the ids with the padding token in the place of placeholders, where the config says so.
ValueId padded_ids(GraphBuilder& b, const ModelConfig& config, ValueId ids);

// Returns the inputs of all layers, [1,T,layers,size], of the embeddings x [1,T,hidden_size].
ValueId layer_inputs(GraphBuilder& b, const DecoderContext& c, ValueId x);

// Returns what the input of layer `layer` adds to x [1,T,hidden_size]; `inputs` are those of all
// layers.
ValueId layer_input_addend(GraphBuilder& b, const DecoderContext& c, ValueId inputs, ValueId x,
                           int64_t layer);

// Rules for their keys (keys/layer_input_keys.cc).
std::vector<KeyRule> layer_input_rules(const std::string& prefix);

}  // namespace ferry::converters
