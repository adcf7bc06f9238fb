// Mamba-2: every head has a state that decays and takes up each token, S' = exp(A dt) S + dt x B^T.
// The output is y = S' C + D x. The tokens of a call are computed at once, by products over all
// pairs of them, which gives the values of the recurrence: heads x tokens x tokens values are
// planned memory. Source: transformers, models/mamba2/modeling_mamba2.py, models/falcon_h1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Reads what Mamba and Mamba-2 have in common: mamba_d_state, mamba_d_conv, mamba_conv_bias and
// mamba_proj_bias, and the activation and the epsilon of the model.
Status read_mixer(const JsonFields& fields, ModelConfig& config);

// Reads the mamba_ keys and time_step_limit into config.mamba. The heads have `inner` values
// together, or hidden_size times mamba_expand. The limit holds for every token; transformers does
// not apply it to tokens that it decodes one by one.
Status read_mamba(const JsonFields& fields, ModelConfig& config, std::optional<int64_t> inner = {});

// Rules for all keys below `mixer`, which ends with a dot.
std::vector<KeyRule> mamba_rules(const std::string& mixer, const ModelConfig& config);

// Rules for embeddings and norms of a model whose layers are one block each: PREFIX embeddings,
// layers.{i}.norm and norm_f.
std::vector<KeyRule> backbone_rules(const std::string& prefix);

// Rules for a decoder whose other keys are those of Bamba: self_attn, feed_forward,
// input_layernorm, pre_ff_layernorm and final_layernorm, with the biases of the config.
std::vector<KeyRule> mamba_decoder_rules(const ModelConfig& config, const std::string& prefix);

// Convolves x [1,T,channels] of a layer over time, with the bias and the activation of the config:
// -> [1,T,channels].
ValueId mamba_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

// Builds the token mixer of a layer. It has the states conv_state and recurrent_state [1,heads,head
// size,state size].
ValueId mamba_mixer(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
