// Cuts pictures into the tiles of one of several resolutions (LLaVA-NeXT, LLaVA-OneVision).
#include <utility>

#include "core/tiled_picture.h"
#include "media/picture_parts.h"

namespace ferry::media {
namespace {

Extent extent_of(Size size) { return {size.height, size.width}; }
Size size_of(Extent extent) {
  return {static_cast<int>(extent.columns), static_cast<int>(extent.rows)};
}

// Returns the picture in the middle of a black frame.
Image framed(const Image& image, Size frame) {
  return window(image, -((frame.width - image.size.width) / 2),
                -((frame.height - image.size.height) / 2), frame, {});
}

// Returns the number of rows that the features of a grid of tiles become, each with a newline
// behind it.
int64_t grid_tokens(const TiledImage& image, const Settings& s) {
  const Extent framed = framed_features(extent_of(image.original),
                                        {image.grid.rows, image.grid.columns}, s.feature_side);
  const Extent kept = reduced_features(framed, s.feature_side, s.most_tiles);
  return kept.rows * (kept.columns + 1);
}

// Returns a picture of several of a prompt, which is a square with the mean colour around it.
template <class Resize>
Result<TiledImage> as_one_tile(const Image& image, const Settings& s, const Resize& to) {
  const bool square = image.size.width == image.size.height;
  const Image padded = square ? image : FERRY_TRY(pad_to_square(image, s.mean));
  TiledImage out;
  out.original = image.size;
  out.tiles.push_back(to(padded, {s.tile, s.tile}));
  return out;
}

}  // namespace

// The first tile is the whole picture, of another shape.
Result<TiledImage> cut_pinpoints(const Image& image, const Settings& s, Backend backend,
                                 ThreadPool& pool) {
  const auto to = [&](const Image& from, Size size) {
    return resize(from, size, s.filter, backend, pool);
  };
  const Size whole{s.tile, s.tile};
  if (s.pads_many && !s.alone) return as_one_tile(image, s, to);
  const Extent resolution = best_resolution(extent_of(image.size), s.pinpoints);
  const Image small = to(image, size_of(size_inside(extent_of(image.size), resolution)));
  TiledImage out;
  out.original = image.size;
  out.grid = {static_cast<int>(resolution.columns) / s.tile,
              static_cast<int>(resolution.rows) / s.tile};
  out.tiles.push_back(to(image, whole));
  for (Image& tile : parts(framed(small, size_of(resolution)), out.grid, s.tile)) {
    out.tiles.push_back(std::move(tile));
  }
  return out;
}

int64_t pinpoint_tokens(const TiledImage& image, const Settings& s) {
  // A picture of one tile has its newline.
  return s.base_tokens + (image.grid == Grid{} ? 1 : grid_tokens(image, s));
}

}  // namespace ferry::media
