// The gated short convolution of LFM2.
// Source: transformers, models/lfm2/modeling_lfm2.py, Lfm2ShortConv.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// out_proj(C * conv(B * x)), where in_proj gives B, C and x side by side.
graph::ValueId short_conv(graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x,
                          int64_t layer);

}  // namespace ferry::converters
