#include "converters/blocks/patch_grid.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/program_interface.h"

namespace ferry::converters {
namespace {

constexpr double kMostScale = 1e9;  // beyond any

}  // namespace

std::pair<ValueId, ValueId> listed_patches(GraphBuilder& b, const VisionConfig& vision,
                                           const BuildOptions& options) {
  const std::string pixels(kPixelValuesPort), shapes(kSpatialShapesPort);
  const Dims listed = {batch(), positions(vision.max_patches), features(vision.patch_values())};
  if (!options.picture) {
    const ValueId list = b.input(pixels, DType::kF32, listed);
    return {list, b.input(shapes, DType::kI64, {batch(), 2})};
  }
  const auto [rows, columns] = *options.picture;
  const int64_t side = vision.patch_size;
  const ValueId planes =
      b.input(pixels, DType::kF32,
              {batch(), vision.channels, positions(rows * side), positions(columns * side)});
  const ValueId cut = b.view(planes, {vision.channels, rows, side, columns, side});
  return {b.view(b.permute(cut, {1, 3, 2, 4, 0}), listed),
          b.literal(DType::kI64, {batch(), 2},
                    graph::literal_of(shapes, std::vector<int64_t>{rows, columns}))};
}

PatchGrid::PatchGrid(GraphBuilder& b, const VisionConfig& vision, ValueId shapes)
    : b_(b), v_(vision) {
  const ValueId sides = b.view(b.to(shapes, DType::kF32), {2});
  rows_ = b.slice(sides, 0, 0, 1);
  columns_ = b.slice(sides, 0, 1, 2);
  const ValueId index = indices(v_.max_patches, positions(v_.max_patches));
  inside_ = b.gt(b.sub(b.mul(rows_, columns_), index), 0.0);
}

ValueId PatchGrid::indices(int64_t count, Dim dim) const {
  return b_.to(b_.arange(0, count, dim), DType::kF32);
}

ValueId PatchGrid::floor(ValueId x) const { return b_.to(b_.to(x, DType::kI64), DType::kF32); }

// Halves keep the quotient away from whole numbers, whatever it is rounded to.
std::pair<ValueId, ValueId> PatchGrid::divide(ValueId x, ValueId by) const {
  const ValueId quotient = floor(b_.div(b_.add(x, b_.scalar(0.5F)), by));
  return {quotient, b_.sub(x, b_.mul(quotient, by))};
}

// A share is a triangle around the middle of the row or column, as wide as it is in the table, and
// at least as wide as one of the table's.
ValueId PatchGrid::shares(ValueId index, ValueId count) const {
  const int64_t grid = v_.grid();
  const ValueId half = b_.scalar(0.5F);
  const ValueId scale = b_.div(b_.scalar(static_cast<float>(grid)), count);
  const ValueId centers =
      b_.view(b_.mul(b_.add(index, half), scale), {positions(v_.max_patches), 1});
  const ValueId least = b_.clamp(scale, 1.0, kMostScale);
  const ValueId distance = b_.div(b_.sub(b_.add(indices(grid, grid), half), centers), least);
  const ValueId below = b_.relu(b_.mul(distance, -1.0)), above = b_.relu(distance);
  const ValueId size = b_.add(above, below);
  const ValueId weights = b_.relu(b_.sub(b_.scalar(1.0F), size));
  return b_.div(weights, b_.sum_last(weights));
}

std::pair<ValueId, ValueId> PatchGrid::places(float padding) const {
  const auto [row, column] = divide(indices(v_.max_patches, positions(v_.max_patches)), columns_);
  const ValueId none = b_.scalar(padding);
  return {b_.where(inside_, row, none), b_.where(inside_, column, none)};
}

ValueId PatchGrid::is_patch() const {
  const ValueId one = b_.scalar(1.0F);
  return b_.where(inside_, one, b_.scalar(0.0F));
}

ValueId PatchGrid::positions_of(ValueId table) const {
  const int64_t grid = v_.grid(), count = v_.max_patches;
  const ValueId all = indices(count, positions(count));
  const ValueId index = b_.where(inside_, all, b_.scalar(0.0F));
  const auto [row, column] = divide(index, columns_);
  const ValueId down = b_.view(shares(row, rows_), {positions(count), grid, 1});
  const ValueId across = b_.view(shares(column, columns_), {positions(count), 1, grid});
  const ValueId both = b_.view(b_.mul(down, across), {batch(), positions(count), v_.patches()});
  return b_.bmm(both, b_.view(table, {batch(), v_.patches(), features(v_.hidden_size)}));
}

ValueId PatchGrid::mask() const {
  const ValueId hidden = b_.scalar(-std::numeric_limits<float>::infinity());
  const ValueId row = b_.where(inside_, b_.scalar(0.0F), hidden);
  return b_.expand(b_.view(row, {1, v_.max_patches}), {v_.max_patches, v_.max_patches});
}

ValueId PatchGrid::by_squares(ValueId x, int64_t width) const {
  const int64_t count = v_.max_patches, square = v_.shuffle * v_.shuffle;
  const ValueId side = b_.scalar(static_cast<float>(v_.shuffle));
  const ValueId squares = b_.scalar(static_cast<float>(square));
  const auto [number, place] = divide(indices(count, positions(count)), squares);
  const auto [down, across] = divide(place, side);
  const auto [row, column] = divide(number, b_.div(columns_, side));
  const ValueId top = b_.add(b_.mul(row, side), down);
  const ValueId left = b_.add(b_.mul(column, side), across);
  const ValueId none = b_.scalar(0.0F);
  const ValueId from = b_.where(inside_, b_.add(b_.mul(top, columns_), left), none);
  const ValueId ids = b_.view(b_.to(from, DType::kI64), {batch(), positions(count)});
  return b_.embedding(b_.view(x, {positions(count), features(width)}), ids);
}

}  // namespace ferry::converters
