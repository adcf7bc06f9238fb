// ALiBi (arXiv 2108.12409): scores have a bias that grows with the position of the key, by a slope
// of each head, in the place of other positions. Sources: transformers,
// models/bloom/modeling_bloom.py, models/mpt/modeling_mpt.py, models/falcon/modeling_falcon.py.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// A member of ModelConfig::numbers: 0 where scores have no such bias, or one of the following.
inline constexpr const char* kAlibi = "alibi";
inline constexpr int64_t kExactAlibi = 1;
// The bias is rounded to bf16, and multiplied by the factor of scores (Falcon).
inline constexpr int64_t kRoundedAlibi = 2;

// Returns the slope of head `head` of `heads`.
double alibi_slope(int64_t head, int64_t heads);

// Adds the bias to full attention: to the mask of its range, or as AttentionKind::bias in a static
// program, whose cache has the key of position p in column p.
void add_alibi(GraphBuilder& b, DecoderContext& c);

}  // namespace ferry::converters
