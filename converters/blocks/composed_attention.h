// Attention composed of core operators, for what llama::custom_sdpa lacks: a softcap on the scores
// (Gemma 2), and attention sinks (GPT-OSS).
#pragma once

#include <optional>

#include "converters/blocks/graph_names.h"

namespace ferry::converters {

struct ScoreStyle {
  double scale = 1.0;              // multiplies q k
  std::optional<double> cap = {};  // scores become cap * tanh(score / cap)
  // f32 [H]: one more score per head, which takes its share of the softmax and has no value.
  ValueId sinks = {};
};

// softmax(scores + mask) v. query [1,T,H,D]; keys and values [1,n,KV,D], H a multiple of KV; mask,
// additive, [T,n], or none
// -> [1,T,H,D].
ValueId composed_attention(GraphBuilder& b, ValueId query, ValueId keys, ValueId values,
                           ValueId mask, const ScoreStyle& style);

// The weights of the softmax of scores [KV,groups,T,n]; the same shape.
ValueId softmax_with_sinks(GraphBuilder& b, ValueId scores, ValueId sinks);

}  // namespace ferry::converters
