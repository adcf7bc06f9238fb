// Keys and values of one layer that several layers attend to (Gemma 3n). attend() of attention.h is
// for those of one layer alone.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// What a query of the layer's kind may attend to, as the style of the program has it.
struct HeldRows {
  ValueId keys, values;
};

// Adds rows of keys and values [1,T,kv_heads,head_dim] to the cache of layer `layer`.
HeldRows hold_rows(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                   ValueId values);

// Causal attention of layer `layer`; the rows are those of a layer of the same kind. q
// [1,T,heads,head_dim] -> the same shape.
ValueId attend_held(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                    const HeldRows& rows);

}  // namespace ferry::converters
