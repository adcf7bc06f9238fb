// The gated short convolution of LFM2.
// Source: transformers, models/lfm2/modeling_lfm2.py, Lfm2ShortConv.
#pragma once

#include "converters/decoder_context.h"

namespace ferry {

// out_proj(C * conv(B * x)), where in_proj gives B, C and x side by side.
ValueId short_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry
