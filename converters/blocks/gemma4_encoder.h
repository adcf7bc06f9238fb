// build_gemma4_encoder() makes a component of the vision tower of Gemma 4 and of what connects it
// to the text decoder. Source: transformers, models/gemma4/modeling_gemma4.py.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Builds forward(pixel_values f32 [1,P,V], spatial_shapes i64 [1,2]) -> image_features f32
// [1,N,hidden_size of the decoder] for one image. Probes are those of build_vision_encoder().
// `config` has such a tower.
Result<Methods> build_gemma4_encoder(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
