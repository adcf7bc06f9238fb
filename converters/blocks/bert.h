// Encoders of BERT's kind: learned positions and token types whose sum is normalised, attention in
// both directions, and a layer norm behind each block. Source: transformers, models/bert.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/config/model_type.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// A member of ModelConfig::numbers: the token that has no position of its own (RoBERTa).
inline constexpr const char* kUncountedToken = "pad_token_id";

// Returns the rules of the keys that BERT has behind `prefix`.
std::vector<KeyRule> bert_rules(const std::string& prefix);
// Returns the rules where position_embeddings has `uncounted` rows that no token has, then that of
// the token without a position.
std::vector<KeyRule> roberta_rules(const std::string& prefix, int64_t uncounted);
// Returns the rules of weight and bias of the layer norm `source`, which older checkpoints call
// gamma and beta.
std::vector<KeyRule> bert_norm_rules(const std::string& prefix, const std::string& source,
                                     const std::string& target);

// Returns the type `name`, with the fields that all families of BERT's kind have.
ModelType bert_type(std::string_view name, std::string_view defaults);

// Refuses what makes a decoder of the encoder, and positions that are not absolute.
Status read_bert(const JsonFields& fields, ModelConfig& config);
// Reads the token that is not counted. Positions begin behind its number.
Status read_uncounted(const JsonFields& fields, int64_t token, ModelConfig& config);

// The style of BERT, for build_styled_decoder().
DecoderStyle bert_style();

}  // namespace ferry::converters
