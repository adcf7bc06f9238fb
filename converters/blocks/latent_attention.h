// Multi-head latent attention (DeepSeek V2 and V3). Keys and values of all heads are products of
// one latent vector per position, so the cache holds that vector only. Queries are projected into
// the latent space, and the result of attention is projected from there into each head's values.
// That is attention with one key head, whose keys [rotated dimensions | latent] are its values too.
// Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Reads the ranks and the sizes of heads. `paired` says that RoPE rotates neighbouring dimensions.
// Scores are multiplied by `scale`, on top of the scale that their width demands.
Status read_latent_attention(const JsonFields& fields, ModelConfig& config, bool paired,
                             double scale);

// Returns the factor of scores that a scaled RoPE with mscale_all_dim demands.
Result<double> latent_score_scale(const JsonFields& fields);

// Rules for all keys below PREFIXlayers.N.self_attn.
std::vector<KeyRule> latent_attention_rules(const std::string& prefix, const ModelConfig& config);

// Builds the token mixer of a layer.
ValueId latent_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
