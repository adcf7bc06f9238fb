// build_vision_encoder() makes a component of a vision transformer, the pixel shuffle behind it and
// the connector to the text decoder. Sources: SigLIP (transformers, models/idefics3) and InternViT
// (models/internvl).
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Builds forward(pixel_values f32 [1,3,H,W]) -> image_features f32 [1,N,hidden_size of the
// decoder], for one image or tile. A tower for lists of patches (VisionConfig::max_patches) has
// forward(pixel_values f32 [1,P,V], spatial_shapes i64 [1,2]) instead. Patches and features are
// row-major. Probes are
// vision_hidden_states.L and vision_last_hidden_state. `config` has a vision tower.
Result<Methods> build_vision_encoder(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
