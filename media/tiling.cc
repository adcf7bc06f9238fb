#include "media/tiling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ferry::media {
namespace {

double ratio(Size size) { return static_cast<double>(size.width) / size.height; }

int whole_tiles(int length, int tile) { return (length + tile - 1) / tile * tile; }

int even(int length) { return std::max(length + length % 2, 1); }

std::vector<Grid> grids_by_tiles(int least, int most) {
  std::vector<Grid> grids;
  for (int columns = 1; columns <= most; ++columns) {
    for (int rows = 1; columns * rows <= most; ++rows) {
      if (columns * rows >= least) grids.push_back({columns, rows});
    }
  }
  std::stable_sort(grids.begin(), grids.end(), [](const Grid& a, const Grid& b) {
    return a.columns * a.rows < b.columns * b.rows;
  });
  return grids;
}

}  // namespace

Size idefics3_size(Size image, int longest_edge) {
  const double shape = ratio(image);
  if (image.width >= image.height) {
    return {longest_edge, even(static_cast<int>(longest_edge / shape))};
  }
  return {even(static_cast<int>(longest_edge * shape)), longest_edge};
}

Size idefics3_canvas(Size size, int tile) {
  const double shape = ratio(size);
  if (size.width >= size.height) {
    const int width = whole_tiles(size.width, tile);
    return {width, whole_tiles(std::max(static_cast<int>(width / shape), 1), tile)};
  }
  const int height = whole_tiles(size.height, tile);
  return {whole_tiles(std::max(static_cast<int>(height * shape), 1), tile), height};
}

Grid idefics3_grid(Size canvas, int tile) {
  if (canvas.width <= tile && canvas.height <= tile) return {};
  return {canvas.width / tile, canvas.height / tile};
}

Grid gotocr2_grid(Size image, int tile, int least, int most) {
  const double shape = ratio(image);
  const double area = static_cast<double>(image.width) * image.height;
  const double tile_area = static_cast<double>(tile) * tile;
  Grid best{1, 1};
  double nearest = std::numeric_limits<double>::infinity();
  for (const Grid& grid : grids_by_tiles(least, most)) {
    const double distance = std::abs(shape - static_cast<double>(grid.columns) / grid.rows);
    const bool large = area > 0.5 * tile_area * grid.columns * grid.rows;
    if (distance > nearest || (distance == nearest && !large)) continue;
    nearest = distance;
    best = grid;
  }
  return best;
}

}  // namespace ferry::media
