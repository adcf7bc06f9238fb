// Prompts of a reference with videos, for vision encoders of images of any shape: the names of
// their tensors, and the places of their rows.
#pragma once

#include <string>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"

namespace ferry::proof {

// Returns the name of the tensor with the patches of the images or videos of a prompt, and of that
// with their grids.
std::string patches_name(const ReferencePrompt& prompt);
std::string grids_name(const ReferencePrompt& prompt);

// Returns kUnsupported for videos beside images or sounds, and for a bundle that takes no videos.
Status check_videos_of(const ReferencePrompt& prompt, const packer::Manifest& manifest,
                       const std::string& who);

// Whether each group of frames has a run of placeholders of its own, as an image has.
bool has_groups_apart(const PromptImages& images);
// Gives the run of placeholders of each video its places. kBadInput for another number of runs, and
// for runs of other lengths.
Status place_videos(const Reference& reference, const ReferencePrompt& prompt,
                    const packer::Manifest& manifest, PromptImages& images);

}  // namespace ferry::proof
