// Biases of scores by the distance of two tokens (T5, MPNet): distances are put into buckets, each
// of which has a learned number for every head. Source: transformers, models/t5/modeling_t5.py.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// Returns the bucket of a key that is `distance` tokens before its query. Keys behind the query
// have buckets of their own where tokens attend both ways, else that of distance 0.
int64_t distance_bucket(const RelativeBiasConfig& config, bool two_way, int64_t distance);

// Adds the bias of relative_bias.weight f32 [buckets, heads] to the mask of full attention, or sets
// c.bias_rows where each layer has a table. The scores of texts behind each other are masked, so
// that any row will do for their distances.
void add_relative_bias(GraphBuilder& b, DecoderContext& c);

// Returns the mask of layer `layer` with the bias of its own table, layers.N.relative_bias.weight;
// without such tables the mask of its kind.
ValueId layer_mask(GraphBuilder& b, const DecoderContext& c, int64_t layer);

}  // namespace ferry::converters
