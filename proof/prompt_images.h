// PromptImages: the images of a prompt, and the positions of their rows among its tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/reference.h"
#include "runner/token_embedder.h"

namespace ferry::proof {

struct PromptImages {
  Shape pixel_shape = {};            // [tiles,3,S,S]
  std::vector<float> pixels = {};    // of that shape; empty where only features are known
  std::vector<float> features = {};  // [rows, hidden_size]; empty until the tiles have been encoded
  // Positions of placeholders that follow each other.
  struct Run {
    int64_t first = 0, count = 0;
  };
  std::vector<Run> runs = {};

  bool empty() const { return runs.empty(); }
  // Views of `features`.
  std::vector<runner::EmbeddingRows> rows() const;
};

// pixel_values and image_features of a prompt that needs images, and the places of their rows. A
// reference has pixel_values [tiles,3,S,S] or [1,tiles,3,S,S]; of the second form, tiles of zeros
// are padding and left out. kBadInput unless both give the same number of rows, at least one, and
// there is one placeholder for each of them. The placeholder is image_token_id of the manifest;
// where that has none, it is the only id that occurs as often as there are rows.
Result<PromptImages> images_of(const Reference& reference, const ReferencePrompt& prompt,
                               const packer::Manifest& manifest);

// [1,3,S,S], what the vision encoder of the bundle takes; empty for a bundle without one.
Shape tile_shape(const packer::Manifest& manifest);
// Rows of features that a tile becomes in the bundle; 0 for a bundle without vision encoder.
int64_t rows_of_tile(const packer::Manifest& manifest);

}  // namespace ferry::proof
