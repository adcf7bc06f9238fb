// Prompts of a reference with videos: the names of their tensors, what these say, and the places of
// their rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"

namespace ferry::proof {

// Returns the name of the tensor with the pixels of images, or of videos.
std::string patches_name(bool films);

// Returns kUnsupported for the videos of a prompt if the bundle takes none.
Status check_videos_of(const ReferencePrompt& prompt, const packer::Manifest& manifest,
                       const std::string& who);

// Whether each group of frames has a run of placeholders of its own, as an image has.
bool has_groups_apart(const PromptImages& images);
// Gives the run of placeholders of each video its places. kBadInput for another number of runs, and
// for runs of other lengths.
Status place_videos(const Reference& reference, const ReferencePrompt& prompt,
                    const packer::Manifest& manifest, PromptImages& images);

// Reads the pixels of videos whose frames are tiles (LLaVA-OneVision), and sets the members of
// `images` that these have, but for runs and features.
Status read_tiled_videos(const Reference& reference, const ReferencePrompt& prompt,
                         const packer::Manifest& manifest, PromptImages& images);
// Reads which of the lists in `images` are the frames of each video (Gemma 4).
Status read_listed_videos(const Reference& reference, const ReferencePrompt& prompt,
                          PromptImages& images);

}  // namespace ferry::proof
