// Replaces the placeholders of images by those of their tiles, and those of sounds by those of
// their rows. It needs no tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "prompt/image_processor.h"

namespace ferry::prompt {

// The limit of image tokens in one prompt, which is beyond any context length.
inline constexpr int64_t kMaxImageTokens = 1 << 20;

// The tiles of an image, in the order of its pixel values: rows x columns tiles, row by row, then
// the whole image, which Lfm2Vl may leave out. A single tile is 0 x 0 or 1 x 1. For Pixtral the
// rows of tokens take the place of tiles.
struct ImageLayout {
  int64_t rows = 0, columns = 0, tiles = 1;
  // The placeholders of each tile; empty where all have tokens_per_tile of the processor.
  std::vector<int64_t> tokens = {};

  int64_t tokens_of(const ImageProcessor& processor, int64_t tile) const {
    return tokens.empty() ? processor.tokens_per_tile : tokens[static_cast<size_t>(tile)];
  }
};

// Counts the occurrences of `part` in `text`, from left to right without overlap.
size_t count_parts(std::string_view text, std::string_view part);

// Returns the text that replaces the placeholder of one image. check_layouts() must have accepted
// the layout.
std::string image_text(const ImageProcessor& processor, const ImageLayout& image);
// Returns the tokens of image_text() without the placeholder. A tokenizer must have each of them.
std::vector<std::string> image_marks(const ImageProcessor& processor, const ImageLayout& image);

// kInternal for a layout whose numbers contradict each other; kBadInput for more than
// kMaxImageTokens.
Status check_layouts(const ImageProcessor& processor, std::span<const ImageLayout> images,
                     const std::string& where);
// Replaces the placeholder of each image. kBadInput unless there are as many placeholders as
// images.
Result<std::string> expand(const ImageProcessor& processor, std::string_view prompt,
                           std::span<const ImageLayout> images, const std::string& where);

// Replaces the placeholder of each sound by a run of `sounds[i]` placeholders between its marks.
// kBadInput unless there are as many placeholders as sounds, and for sounds of a processor without
// these tokens.
Result<std::string> expand_sounds(const ImageProcessor& processor, std::string_view prompt,
                                  std::span<const int64_t> sounds, const std::string& where);

}  // namespace ferry::prompt
