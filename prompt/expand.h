// The pure part of image prompts: placeholders of images to those of their tiles.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "prompt/image_processor.h"

namespace ferry::prompt {

// In one prompt; beyond any context.
inline constexpr int64_t kMaxImageTokens = 1 << 20;

// How an image was cut, in the order of its pixel values: rows x columns tiles, row by row, and the
// whole image as the last one. One tile in all is 0 x 0 or 1 x 1.
struct ImageLayout {
  int64_t rows = 0, columns = 0, tiles = 1;
};

// How often `part` is in `text`, from left to right without overlap.
size_t count_parts(std::string_view text, std::string_view part);

// The text that takes the place of the placeholder of one image. The layout is one that
// check_layouts() accepts.
std::string image_text(const ImageProcessor& processor, const ImageLayout& image);
// The tokens of that text but the placeholder, each of which a tokenizer must have.
std::vector<std::string> image_marks(const ImageProcessor& processor, const ImageLayout& image);

// kInternal for a layout whose numbers contradict each other; kBadInput beyond kMaxImageTokens.
Status check_layouts(const ImageProcessor& processor, std::span<const ImageLayout> images,
                     const std::string& where);
// Replaces the placeholder of each image. kBadInput unless there are as many as images.
Result<std::string> expand(const ImageProcessor& processor, std::string_view prompt,
                           std::span<const ImageLayout> images, const std::string& where);

}  // namespace ferry::prompt
