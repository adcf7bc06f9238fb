// routed(): the router of a layer with experts, as MoeConfig describes it.
#pragma once

#include <string>

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// For each token the experts that it passes through and what multiplies their outputs.
struct Route {
  ValueId ids;     // i64 [T,k]
  ValueId scores;  // f32 [T,k]
};

// `rows` [T,hidden]; `prefix` is "layers.N.feed_forward". Probes record the router of the layer:
// router_logits.N f32 [T,experts], router_experts.N i64 [T,k], the chosen experts; where the
// program does not look scores up by the chosen experts, router_weights.N f32 [T,k], their softmax
// values; and where a bias helps to choose, router_choice.N f32 [T,experts], what is compared.
Route routed(GraphBuilder& b, const DecoderContext& c, ValueId rows, int64_t layer,
             const std::string& prefix);

}  // namespace ferry::converters
