// DeepstackRows gives the features of images that the outputs of the first layers of a text decoder
// get added, at the tokens of a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/token_embedder.h"

namespace ferry::runner {

class DeepstackRows {
 public:
  // For `layers` layers of states of `width`, and calls of at most `most_tokens`.
  DeepstackRows(int64_t layers, int64_t most_tokens, int64_t width);

  // Sets the rows for later calls. The values must stay until they are replaced.
  void set(std::span<const EmbeddingRows> rows) { rows_.assign(rows.begin(), rows.end()); }
  // Returns [layers,count,width] for the tokens at [position, position + count): zeros but for rows
  // of images. Valid until the next call. Allocates nothing.
  std::span<const float> of_call(int64_t position, int64_t count);

 private:
  int64_t layers_, width_;
  std::vector<float> values_;  // zeros, but where `filled_`
  bool filled_ = false;
  std::vector<EmbeddingRows> rows_;
};

}  // namespace ferry::runner
