// Reads pictures of any shape, whose patches follow each other without padding, from a reference:
// images and videos of Qwen-VL, and images in planes (Pixtral, Mistral 3).
#pragma once

#include <cstdint>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"

namespace ferry::proof {

// Reads the rows and columns of patches of all images, and then of the groups of frames of all
// videos. kBadInput unless the vision encoder takes them.
Status read_shapes(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images);

// Reads the patches of the shapes that read_shapes() found, f32 [patches,values]. kBadInput where
// the reference has others.
Status read_patches(const Reference& reference, const ReferencePrompt& prompt,
                    PromptImages& images);

// Returns the number of rows that the vision encoder makes of the shapes.
int64_t blocks_of(const PromptImages& images);

}  // namespace ferry::proof
