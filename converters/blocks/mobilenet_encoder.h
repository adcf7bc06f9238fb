// build_mobilenet_encoder() makes the vision tower of Gemma 3n: a MobileNet-v5, whose outputs of
// some stages are put together, and what makes rows of the text decoder of them. Sources: timm,
// models/mobilenetv5.py, models/_efficientnet_blocks.py, layers/attention2d.py; transformers,
// models/gemma3n/modeling_gemma3n.py.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Builds forward(pixel_values f32 [1,3,S,S]) -> image_features f32 [1,N,hidden_size of the
// decoder]. Probes are vision_hidden_states.L, the input of block L of all stages, and
// vision_last_hidden_state: pixels as rows, f32 [1,H*W,channels]. `config` has
// VisionConfig::mobilenet.
Result<Methods> build_mobilenet_encoder(const ModelConfig& config, const BuildOptions& options);

// Returns the values of the largest state of the tower for pictures of image_size.
int64_t mobilenet_state_size(const VisionConfig& vision);

}  // namespace ferry::converters
