// Prompts for proofs without a reference, and greedy continuations.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/reference_recorder.h"
#include "runner/decoder.h"
#include "runner/vision_encoder.h"

namespace ferry::proof {

// Tokens of the continuation that proofs without a reference compare.
inline constexpr int64_t kGreedyTokens = 8;

// Prompts that any model of this vocabulary and capacity can run: pseudo-random ids, always the
// same for the same sizes. They have no continuation.
std::vector<RecordedPrompt> probing_prompts(int64_t vocab_size, int64_t capacity);

// Gives the first prompt an image of pseudo-random pixels behind its first token, where the model
// takes images and the context has room for one.
void add_probing_image(const packer::Manifest& manifest, int64_t capacity,
                       std::vector<RecordedPrompt>& prompts);

// Gives prompts with pixel values the features that `vision` makes of them; it may be nullptr.
Status encode_images(runner::VisionEncoder* vision, std::vector<RecordedPrompt>& prompts);

// Replaces the continuation of every prompt by the decoder's own, by largest logit: as many tokens
// as it has and `least` at least, but not more than fit into `capacity` positions or the decoder's.
Status continue_prompts(runner::Decoder& decoder, const packer::Manifest& manifest,
                        int64_t capacity, std::vector<RecordedPrompt>& prompts,
                        int64_t least = kGreedyTokens);

}  // namespace ferry::proof
