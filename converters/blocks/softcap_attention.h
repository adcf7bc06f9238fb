// Attention with a softcap on the scores (Gemma 2), composed of core operators, because
// llama::custom_sdpa has no softcap.
#pragma once

#include "converters/blocks/graph_names.h"

namespace ferry::converters {

// softmax(cap * tanh(scale * q k / cap) + mask) v. query [1,T,H,D]; keys and values [1,n,KV,D], H a
// multiple of KV; mask, additive, [T,n] -> [1,T,H,D].
ValueId softcap_attention(GraphBuilder& b, ValueId query, ValueId keys, ValueId values,
                          ValueId mask, double scale, double cap);

}  // namespace ferry::converters
