// Attention with a softcap on the scores (Gemma 2), of core operators: llama::custom_sdpa has none.
#pragma once

#include "graph/builder.h"

namespace ferry::converters {

// softmax(cap * tanh(scale * q k / cap) + mask) v. query [1,T,H,D]; keys and values [1,n,KV,D], H a
// multiple of KV; mask, additive, [T,n] -> [1,T,H,D].
graph::ValueId softcap_attention(graph::GraphBuilder& b, graph::ValueId query, graph::ValueId keys,
                                 graph::ValueId values, graph::ValueId mask, double scale,
                                 double cap);

}  // namespace ferry::converters
