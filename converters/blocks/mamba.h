// Mamba-2: every head has a state that decays and takes up each token, S' = exp(A dt) S + dt x B^T.
// The output is y = S' C + D x. The tokens of a call are computed at once, by products over all
// pairs of them, which gives the values of the recurrence: heads x tokens x tokens values are
// planned memory. Source: transformers, models/granitemoehybrid/modeling_granitemoehybrid.py.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Reads the mamba_ keys and time_step_limit.
Status read_mamba(const JsonFields& fields, ModelConfig& config);

// Rules for all keys below `mixer`, which ends with a dot.
std::vector<KeyRule> mamba_rules(const std::string& mixer, const ModelConfig& config);

// Builds the token mixer of a layer. It has the states conv_state and recurrent_state [1,heads,head
// size,state size].
ValueId mamba(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
