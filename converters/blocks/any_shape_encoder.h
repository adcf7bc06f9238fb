// build_any_shape_encoder() makes a component of a vision transformer over the patches of an image
// of any shape, and the connector behind it. Sources: transformers, models/qwen2_vl, qwen2_5_vl,
// qwen3_vl, pixtral, mistral3 and llava.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "core/image_grid.h"

namespace ferry::converters {

// Returns how images become the inputs of the tower of `vision`, which has AnyShapeConfig.
ImageGrid image_grid_of(const VisionConfig& vision);

// Builds forward for one image of up to options.image_patches patches, or of the shape
// options.picture. Inputs and outputs are those of core/program_interface.h. Probes are
// vision_hidden_states.L and vision_last_hidden_state, f32 [1,N,hidden_size of the tower]. `config`
// has such a tower.
Result<Methods> build_any_shape_encoder(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
