// Prompts for proofs and calibration: read from a file of token ids, or pseudo-random; and their
// greedy continuations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/reference_recorder.h"
#include "runner/decoder.h"
#include "runner/row_encoders.h"

namespace ferry::proof {

using Prompts = std::vector<std::vector<int64_t>>;

// Reads a text file with one prompt per line: token ids separated by commas or blanks, optionally
// in brackets, as `ferry tokenize` prints them. Empty lines are ignored. kBadInput, with the number
// of the line, for anything else.
Result<Prompts> read_prompts(const std::string& path);

// Number of continuation tokens that proofs without a reference compare.
inline constexpr int64_t kGreedyTokens = 8;

// Returns prompts that any model with this vocabulary and capacity can run: pseudo-random ids that
// depend only on the sizes. The prompts have no continuation.
std::vector<RecordedPrompt> probing_prompts(int64_t vocab_size, int64_t capacity);

// Adds an image of pseudo-random pixels to the first prompt, after its first token, if the model
// takes images and the context has room for one.
void add_probing_image(const packer::Manifest& manifest, int64_t capacity,
                       std::vector<RecordedPrompt>& prompts);

// Gives every prompt a pseudo-random sound or text, if the model has an encoder for it. Takes the
// tokens away if it takes sound alone.
void add_probing_encoder_input(const packer::Manifest& manifest,
                               std::vector<RecordedPrompt>& prompts);

// Adds a window of pseudo-random frames to the first prompt without images, after its first token,
// if sounds become rows of the model and the context has room for one.
void add_probing_sound(const packer::Manifest& manifest, int64_t capacity,
                       std::vector<RecordedPrompt>& prompts);

// Computes the features of prompts with pixel values or frames, as far as there are encoders.
Status encode_images(const runner::RowEncoders& encoders, std::vector<RecordedPrompt>& prompts);

// Replaces the continuation of every prompt by the decoder's own greedy one. The new continuation
// has as many tokens as the old one and at least `least`, but no more than fit into `capacity`
// positions or into the decoder.
Status continue_prompts(runner::Decoder& decoder, const packer::Manifest& manifest,
                        int64_t capacity, std::vector<RecordedPrompt>& prompts,
                        int64_t least = kGreedyTokens);

}  // namespace ferry::proof
