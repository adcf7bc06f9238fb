// ImageSpans knows which positions of a sequence hold the rows of one image. Decoders need it where
// the rows of an image attend to each other in both directions: all of them must then be tokens of
// one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "runner/token_embedder.h"

namespace ferry::runner {

class ImageSpans {
 public:
  // Rows without a token between them are one image, as in the reference. With a prompt_end all
  // tokens of the sequence before it are as those of one image. check_rows() must have accepted the
  // rows, which are `width` wide.
  void set(std::span<const EmbeddingRows> rows, int64_t width);

  // Returns the position behind the last row of the image at `position`, or position + 1 where
  // there is no image. Allocates nothing.
  int64_t end_at(int64_t position) const;
  // Returns how many of `count` tokens from `position` on the next call takes, `most` at most, so
  // that it cuts no image. kUsage if an image does not fit into the call.
  Result<size_t> call_length(int64_t position, size_t count, size_t most) const;

 private:
  struct Span {
    int64_t first, end;
  };
  // Returns the image with `position` inside of it, or one that is empty.
  Span inside(int64_t position) const;

  std::vector<Span> spans_;   // ascending, disjoint
  bool are_prompts_ = false;  // whether spans are whole prompts
};

}  // namespace ferry::runner
