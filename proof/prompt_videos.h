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

// Returns the name of the tensor with the pixels of the images or videos of a prompt.
std::string patches_name(const ReferencePrompt& prompt);

// Returns kUnsupported for videos beside sounds, for videos beside images unless these have any
// shape, and for a bundle that takes no videos.
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
// Reads which of the lists in `images` are the frames of each video (Gemma 4), and makes the lists
// as long as those of images, which have `longest` patches.
Status read_listed_videos(const Reference& reference, const ReferencePrompt& prompt,
                          int64_t longest, PromptImages& images);

// Returns the rows of `images` of what the vision encoder gives: of frames that are tiles the rows
// of their videos, otherwise `encoded` itself.
std::vector<float> rows_of_encoded(const PromptImages& images, std::vector<float> encoded);

}  // namespace ferry::proof
