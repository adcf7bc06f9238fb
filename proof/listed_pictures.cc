#include "proof/listed_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "proof/prompt_videos.h"
#include "runner/vision_encoder.h"

namespace ferry::proof {
namespace {

constexpr const char* kSides = "spatial_shapes";

// The name of the tensor with the column and the row of each patch.
const char* positions_name(bool films) {
  return films ? "video_position_ids" : "image_position_ids";
}

// Returns the rows and columns of lists of patches whose columns and rows are `positions`, i64
// [tiles,patches,2]. The patches must stand row by row, with -1 for padding behind them. `where`
// begins the message.
Result<std::vector<int64_t>> sides_of(std::span<const int64_t> positions, int64_t tiles,
                                      int64_t patches, const std::string& where) {
  std::vector<int64_t> sides;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const auto size = static_cast<size_t>(2 * patches);
    const auto own = positions.subspan(static_cast<size_t>(tile) * size, size);
    int64_t rows = 0, columns = 0;
    for (size_t i = 0; i < size; i += 2) {
      columns = std::max(columns, std::min(own[i], patches - 1) + 1);
      rows = std::max(rows, std::min(own[i + 1], patches - 1) + 1);
    }
    for (int64_t patch = 0; patch < patches; ++patch) {
      const bool inside = columns > 0 && patch < rows * columns;
      const auto at = static_cast<size_t>(2 * patch);
      if (own[at] == (inside ? patch % columns : -1) &&
          own[at + 1] == (inside ? patch / columns : -1)) {
        continue;
      }
      return bad_input(
          fmt::format("{}: the patches of image {} do not stand row by row", where, tile));
    }
    sides.insert(sides.end(), {rows, columns});
  }
  return sides;
}

// Returns the lists of frames beside those of images, or the other way round.
int64_t tiles_beside(const Reference& reference, const ReferencePrompt& prompt, bool films) {
  constexpr int64_t kMostTiles = 1 << 24;
  const std::string name = patches_name(!films);
  const Shape shape = prompt.has(name) ? reference.shape(prompt, name) : Shape();
  return shape.empty() ? 0 : std::min(shape[0], kMostTiles);
}

// Returns the rows and columns of each list of patches. Those of images are before those of frames
// in one tensor.
Result<std::vector<int64_t>> read_sides(const Reference& reference, const ReferencePrompt& prompt,
                                        int64_t tiles, int64_t patches, bool films) {
  if (prompt.has(kSides)) {
    const int64_t others = tiles_beside(reference, prompt, films);
    const auto sides = FERRY_TRY(reference.integers(prompt, kSides, {tiles + others, 2}));
    const auto first = sides.begin() + (films ? 2 * others : 0);
    return std::vector<int64_t>(first, first + 2 * tiles);
  }
  const std::string name = positions_name(films), who = name_of(reference, prompt);
  if (prompt.has(name)) {
    const auto positions = FERRY_TRY(reference.integers(prompt, name, {tiles, patches, 2}));
    return sides_of(positions, tiles, patches, who + ": " + name);
  }
  return bad_input(
      fmt::format("{}: has pixel values and neither spatial_shapes nor {}", who, name));
}

}  // namespace

Status read_list_shapes(const Reference& reference, const ReferencePrompt& prompt, int64_t longest,
                        int64_t rows, bool films, PromptImages& images) {
  const int64_t tiles = images.pixel_shape[0], patches = images.pixel_shape[1];
  const std::vector<int64_t> sides =
      FERRY_TRY(read_sides(reference, prompt, tiles, patches, films));
  if (prompt.has(kLastTowerState)) {
    const Shape& shape = reference.shape(prompt, kLastTowerState);
    const bool apart =
        shape.size() == 3 && shape[0] == tiles && (shape[1] == patches || shape[1] == rows);
    images.joins_states = shape.size() == 3 && !apart;
  }
  const runner::VisionEncoder::Sizes sizes{.patches = longest, .rows = rows};
  const auto takes = [&](const ImageShape& shape) {
    return shape.patches() <= patches &&
           (images.picture ? shape == *images.picture : sizes.takes(shape));
  };
  std::vector<int64_t> mask;
  for (size_t i = 0; i < sides.size(); i += 2) {
    const int64_t height = sides[i], width = sides[i + 1];
    images.shapes.push_back({height, width});
    if (!takes(images.shapes.back())) {
      return bad_input(
          fmt::format("{}: spatial_shapes: the vision encoder takes no {} x {} patches",
                      name_of(reference, prompt), height, width));
    }
    for (int64_t patch = 0; patch < patches; ++patch) mask.push_back(patch < height * width);
  }
  if (!prompt.has("pixel_attention_mask")) return {};
  if (FERRY_TRY(reference.integers(prompt, "pixel_attention_mask", {tiles, patches})) == mask) {
    return {};
  }
  return bad_input(name_of(reference, prompt) +
                   ": pixel_attention_mask and spatial_shapes differ in the number of patches");
}

}  // namespace ferry::proof
