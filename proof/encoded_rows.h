// The rows that an encoder makes of the images, videos or sounds of a prompt of a reference.
#pragma once

#include <span>
#include <vector>

#include "core/result.h"
#include "proof/prompt_images.h"
#include "runner/vision_encoder.h"

namespace ferry::proof {

// Returns these rows, [rows,row width]; see runner::EmbeddingRows.
Result<std::vector<float>> encode_kind(runner::VisionEncoder& encoder, const PromptImages& images);

// Puts the rows of pictures and videos together from those of their tiles, [tiles,rows,width].
Result<std::vector<float>> rows_of_tiles(const PromptImages& images,
                                         std::span<const float> features);

}  // namespace ferry::proof
