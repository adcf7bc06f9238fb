#include "media/tiles.h"

#include <algorithm>
#include <utility>

namespace ferry::media {
namespace {

Image part(const Image& canvas, int column, int row, int side) {
  Image tile = make_image({side, side});
  for (int y = 0; y < side; ++y) {
    const uint8_t* from =
        canvas.row(row * side + y) + size_t{3} * static_cast<size_t>(column * side);
    std::copy(from, from + tile.row_bytes(), tile.row(y));
  }
  return tile;
}

std::vector<Image> parts(const Image& canvas, Grid grid, int side) {
  std::vector<Image> tiles;
  for (int row = 0; row < grid.rows; ++row) {
    for (int column = 0; column < grid.columns; ++column) {
      tiles.push_back(part(canvas, column, row, side));
    }
  }
  return tiles;
}

TiledImage single(Image tile) {
  TiledImage out;
  out.tiles.push_back(std::move(tile));
  return out;
}

// The last tile is the canvas, scaled down, and not the original image.
template <class Resize>
TiledImage cut_idefics3(const Image& image, const Settings& s, const Resize& to) {
  const Size whole{s.tile, s.tile};
  const bool fixed = s.fixed.width > 0;
  const Image first = to(image, fixed ? s.fixed : idefics3_size(image.size, s.longest_edge));
  if (!s.split) return single(to(first, whole));
  Image canvas = to(first, idefics3_canvas(first.size, s.tile));
  const Grid grid = idefics3_grid(canvas.size, s.tile);
  if (grid == Grid{}) return single(std::move(canvas));
  TiledImage out{grid, parts(canvas, grid, s.tile)};
  out.tiles.push_back(to(canvas, whole));
  return out;
}

// The last tile is the original image, scaled down.
template <class Resize>
TiledImage cut_gotocr2(const Image& image, const Settings& s, const Resize& to) {
  const Size whole{s.tile, s.tile};
  const Grid grid =
      s.crop ? gotocr2_grid(image.size, s.tile, s.least_patches, s.most_patches) : Grid{1, 1};
  if (grid == Grid{1, 1}) return {grid, single(to(image, whole)).tiles};
  const Image canvas = to(image, {grid.columns * s.tile, grid.rows * s.tile});
  TiledImage out{grid, parts(canvas, grid, s.tile)};
  out.tiles.push_back(to(image, whole));
  return out;
}

}  // namespace

TiledImage cut(const Image& image, const Settings& settings, Backend backend, ThreadPool& pool) {
  const auto to = [&](const Image& from, Size size) {
    return resize(from, size, settings.filter, backend, pool);
  };
  return settings.kind == ProcessorKind::kIdefics3 ? cut_idefics3(image, settings, to)
                                                   : cut_gotocr2(image, settings, to);
}

}  // namespace ferry::media
