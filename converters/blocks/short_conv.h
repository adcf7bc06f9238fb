// The gated short convolution of LFM2.
// Source: transformers, models/lfm2/modeling_lfm2.py, Lfm2ShortConv.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// The names of its sizes in ModelConfig::numbers.
inline constexpr const char* kConvKernel = "conv_kernel";
inline constexpr const char* kConvBias = "conv_bias";  // 0 or 1, of all projections

// out_proj(C * conv(B * x)), where in_proj gives B, C and x side by side.
ValueId short_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);

}  // namespace ferry::converters
