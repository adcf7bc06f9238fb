// Mamba: every channel has a state of `state` numbers, each with a decay of its own:
// S' = exp(A dt) S + dt x B, and the output is y = S' C + D x. Source: transformers,
// models/mamba/modeling_mamba.py, models/jamba, models/falcon_mamba.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Reads mamba_expand, mamba_dt_rank and what read_mixer() reads into config.mamba.
Status read_selective_scan(const JsonFields& fields, ModelConfig& config);

// Rules for all keys below `mixer`, which ends with a dot. Those of the inner norms are the
// family's.
std::vector<KeyRule> selective_scan_rules(const std::string& mixer, const ModelConfig& config);

// Builds the token mixer of a layer. It has the states conv_state and recurrent_state
// [1,channels,state,1]. Planned memory has a few times channels x state x tokens values.
ValueId selective_scan(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
