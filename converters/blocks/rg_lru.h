// The recurrent block of Griffin: a convolution over time, and behind it a gated linear recurrence
// (RG-LRU), S' = a S + sqrt(1 - a^2) i x in every channel, where the gates a and i follow from x.
// The first token of a sequence has a factor of 1 in place of the root.
// Source: transformers, models/recurrent_gemma/modeling_recurrent_gemma.py; arXiv 2402.19427.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Members of ModelConfig::numbers: the channels of the recurrence, a multiple of the number of
// heads, and the tokens that the convolution reads.
inline constexpr const char* kLruWidth = "lru_width";
inline constexpr const char* kLruKernel = "conv1d_width";

// Rules for all keys below `block`, which ends with a dot.
std::vector<KeyRule> rg_lru_rules(const std::string& block);

// Builds the token mixer of a layer: x [1,T,hidden_size] -> the same. It has the states conv_state
// and recurrent_state [1,channels,1,1]. The matrices of the gates are f32 in any bundle.
ValueId rg_lru(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
