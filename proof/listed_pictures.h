// Reads pictures that are lists of patches from a reference (Gemma 4, LFM2-VL).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/result.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"

namespace ferry::proof {

// The last state of a tower.
inline constexpr const char* kLastTowerState = "vision_last_hidden_state";

// Reads the shapes of the lists in `images`, whose pixels are there: of images, or of frames. The
// vision encoder makes `rows` features of lists of up to `longest` patches. kBadInput unless it
// takes the shapes, and the mask of the reference, if there is one, says the same.
Status read_list_shapes(const Reference& reference, const ReferencePrompt& prompt, int64_t longest,
                        int64_t rows, bool films, PromptImages& images);

}  // namespace ferry::proof
