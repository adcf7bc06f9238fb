#include "proof/tiled_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "proof/row_ports.h"
#include "runner/picture_tiles.h"

namespace ferry::proof {
namespace {

constexpr const char* kPictureSizes = "image_sizes";

// Reads the sizes of pictures whose tiles have rows together.
Status read_picture_sizes(const Reference& reference, const ReferencePrompt& prompt,
                          PromptImages& images) {
  const std::string who = name_of(reference, prompt);
  if (!prompt.has(kPictureSizes)) {
    return bad_input(fmt::format("{}: has pixel_values and no {}", who, kPictureSizes));
  }
  const Shape shape = reference.shape(prompt, kPictureSizes);
  if (shape.size() != 2 || shape[0] < 1 || shape[1] != 2) {
    return bad_input(
        fmt::format("{}: {} is {}, expected [images, 2]", who, kPictureSizes, to_string(shape)));
  }
  const std::vector<int64_t> sides = FERRY_TRY(reference.integers(prompt, kPictureSizes, shape));
  for (size_t i = 0; i < sides.size(); i += 2) images.shapes.push_back({sides[i], sides[i + 1]});
  return runner::PictureTiles::check(images.shapes, who + ": " + kPictureSizes);
}

// Returns the tiles that each picture has in pixel_values of `shape`, whose other tiles are padding
// where it is that of a batch.
Result<std::vector<int64_t>> tiles_in(const PromptImages& images, const Shape& shape,
                                      const std::string& who) {
  const auto pictures = std::ssize(images.shapes);
  if (shape.size() == 4) return images.tiled->tiles_of(images.shapes, shape[0], who);
  std::vector<int64_t> counts(images.shapes.size(), 1);
  for (size_t i = 0; i < counts.size() && shape[1] > 1; ++i) {
    counts[i] = images.tiled->tiles_of(images.shapes[i]);
  }
  if (shape[0] == pictures && std::ranges::max(counts) <= shape[1]) return counts;
  return bad_input(fmt::format("{}: pixel_values are {}, not the tiles of {} pictures of {}", who,
                               to_string(shape), pictures, kPictureSizes));
}

}  // namespace

Status read_tiled(const Reference& reference, const ReferencePrompt& prompt,
                  const packer::Manifest& manifest, PromptImages& images) {
  const std::string who = name_of(reference, prompt);
  const Shape tile = tile_shape(manifest), shape = reference.shape(prompt, "pixel_values");
  images.tiled =
      runner::PictureTiles::in(manifest, tile, {1, rows_of_tile(manifest), manifest.hidden_size});
  const bool batch = shape.size() == 5;
  const bool fits = images.tiled && (batch || shape.size() == 4) && shape[batch ? 1 : 0] >= 1 &&
                    Shape(shape.end() - 3, shape.end()) == Shape(tile.begin() + 1, tile.end());
  if (!fits) {
    return bad_input(fmt::format("{}: pixel_values are {}, the vision encoder takes tiles of {}",
                                 who, to_string(shape), to_string(tile)));
  }
  FERRY_RETURN_IF_ERROR(read_picture_sizes(reference, prompt, images));
  images.tile_counts = FERRY_TRY(tiles_in(images, shape, who));
  const std::vector<float> all = FERRY_TRY(reference.floats(prompt, "pixel_values", shape));
  const int64_t size = tile[1] * tile[2] * tile[3];
  std::span<const float> left = all;
  for (const int64_t count : images.tile_counts) {
    const auto own = left.first(static_cast<size_t>(count * size));
    images.pixels.insert(images.pixels.end(), own.begin(), own.end());
    left = left.subspan(static_cast<size_t>((batch ? shape[1] : count) * size));
  }
  images.pixel_shape = {std::ssize(images.pixels) / size, tile[1], tile[2], tile[3]};
  return {};
}

}  // namespace ferry::proof
