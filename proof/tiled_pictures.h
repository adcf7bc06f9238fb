// Reads the pixels of pictures whose tiles have rows together from a reference (LLaVA-NeXT).
#pragma once

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"

namespace ferry::proof {

// Sets the members of `images` that such pictures have, but for runs and features. kBadInput unless
// the tiles are those that the sizes of the pictures have.
Status read_tiled(const Reference& reference, const ReferencePrompt& prompt,
                  const packer::Manifest& manifest, PromptImages& images);

}  // namespace ferry::proof
