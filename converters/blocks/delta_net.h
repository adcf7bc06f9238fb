// Gated DeltaNet (Qwen3.5, Qwen3-Next) as graph nodes.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// The mixer of layer `layer`, with convolution and recurrent state. x and the result are
// [1,T,hidden_size].
graph::ValueId gated_delta_net(graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x,
                               int64_t layer);

}  // namespace ferry::converters
