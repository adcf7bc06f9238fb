// Embeddings of token ids from tables of their own (Gemma 3n): a row of the table, an RMS norm, a
// linear into the width of the text decoder, and a norm without weights. ModelConfig::token_ranges
// says for which ids. Source: transformers, models/gemma3n/modeling_gemma3n.py,
// Gemma3nMultimodalEmbedder.
#pragma once

#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns `rows` f32 [1,T,hidden_size] with those of the ranges in the place of rows of their ids;
// `ids` are integers [1,T].
ValueId with_token_ranges(GraphBuilder& b, const ModelConfig& config, ValueId ids, ValueId rows);

// Returns rows of the text decoder, f32 [1,N,hidden_size], of an encoder's rows f32 [1,N,width]: a
// norm of their own, the linear of the range, and the norm without weights.
ValueId encoded_rows(GraphBuilder& b, const ModelConfig& config, const TokenRangeConfig& range,
                     ValueId x);

// Returns the embedding of one id of the range as a row behind those, f32 [1,1,hidden_size].
ValueId padding_row(GraphBuilder& b, const ModelConfig& config, const TokenRangeConfig& range,
                    int64_t id);

// Returns the ties of the weights of these rows, and of padding_row() if the encoder `pads`, to
// those of the token embedding. The two programs may have them in different dtypes.
std::vector<TieRule> range_ties(const TokenRangeConfig& range, bool pads);

}  // namespace ferry::converters
