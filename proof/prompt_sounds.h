// The sounds of a prompt of a reference: windows of frames, or sounds of any number of frames, of
// which a mask says what is padding.
#pragma once

#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"
#include "runner/padded_sounds.h"

namespace ferry::proof {

// Says of each frame of several sounds whether it is no padding.
inline constexpr std::string_view kFramesMask = "input_features_mask";

// Reads the windows of frames of sounds, or the frames of sounds of any number of them.
Status read_sounds(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images);

// Returns the sizes of sounds of any number of frames.
runner::SoundSizes sound_sizes(const PromptImages& images);
// Returns the mask of the frames, i64 [sounds,frames].
std::vector<int64_t> frames_mask(const PromptImages& images);

// Takes the rows of padding out of `values`, a tensor of the encoder of which one call gives
// `shape`, and returns the shape of the rest: [1,rows of all sounds,width].
Shape join_sounds(const PromptImages& images, std::string_view name, const Shape& shape,
                  std::vector<float>& values);

}  // namespace ferry::proof
