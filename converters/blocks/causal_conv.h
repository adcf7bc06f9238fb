// causal_conv: a causal depthwise convolution over time, with its state.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// x [1,T,channels] -> [1,channels,T] with weight layers.N.attention.conv1d.weight (channels, 1,
// kernel). State conv_state [1,channels,kernel] holds the last `kernel` inputs, one more than the
// convolution needs: the layout that transformers and ExecuTorch keep.
ValueId causal_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                    int64_t channels, int64_t kernel);

}  // namespace ferry::converters
