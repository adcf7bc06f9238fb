// Gated DeltaNet (Qwen3.5, Qwen3-Next) as graph nodes.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// The mixer of layer `layer`, with convolution and recurrent state. x and the result are
// [1,T,hidden_size].
ValueId gated_delta_net(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
