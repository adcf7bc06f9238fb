// The inputs that images give the parts of a model that proofs execute: pixel values and places for
// the vision encoder, rows and places for the text decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"
#include "proof/checkpoint_execution.h"
#include "proof/prompt_images.h"

namespace ferry::proof {

// Executes the vision encoder for all images of a prompt that has pixels. Returns [rows, row
// width]; see runner::EmbeddingRows. `forget` is called behind a call whose observed values are not
// those of the prompt.
Result<std::vector<float>> encode_images(LoadedPart& part, const PromptImages& images,
                                         const std::function<void()>& forget = {});

// Puts the rows of images at their places in the embeddings of `passed`, which are those of `count`
// tokens from `position` on, and adds the inputs that say where images are. `all` are the rows of
// all kinds.
Status merge_image_rows(const PromptImages& images, std::span<const runner::EmbeddingRows> all,
                        int64_t position, int64_t count, PassedTensors& passed);

// Makes images of any shape fit programs that take them as `manifest` says, which need not be those
// of the bundle that the prompt was read for.
void fit_images(const packer::Manifest& manifest, PromptImages& images);

// Returns rope_positions of tokens without images before them: i64 [3,count].
std::vector<int64_t> text_places(int64_t position, size_t count);

}  // namespace ferry::proof
