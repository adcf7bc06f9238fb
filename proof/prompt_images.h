// PromptImages holds the images of a prompt, and the positions of their rows among its tokens.
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
  std::vector<float> pixels = {};    // in this shape; empty if only features are known
  std::vector<float> features = {};  // [rows, hidden_size]; empty until the tiles are encoded
  // Consecutive positions of placeholders.
  struct Run {
    int64_t first = 0, count = 0;
  };
  std::vector<Run> runs = {};

  bool empty() const { return runs.empty(); }
  // Returns views of `features`.
  std::vector<runner::EmbeddingRows> rows() const;
};

// Returns pixel_values and image_features of a prompt that needs images, and the positions of their
// rows. A reference has pixel_values [tiles,3,S,S] or [1,tiles,3,S,S]; in the second form, tiles of
// zeros are padding and left out. kBadInput unless both give an equal number of rows, at least one,
// with one placeholder for each row. The placeholder is image_token_id of the manifest; if the
// manifest has none, it is the only id that occurs once per row.
Result<PromptImages> images_of(const Reference& reference, const ReferencePrompt& prompt,
                               const packer::Manifest& manifest);

// Returns [1,3,S,S], the shape that the vision encoder of the bundle takes; empty if the bundle has
// none.
Shape tile_shape(const packer::Manifest& manifest);
// Returns the number of feature rows per tile; 0 for a bundle without vision encoder.
int64_t rows_of_tile(const packer::Manifest& manifest);

}  // namespace ferry::proof
