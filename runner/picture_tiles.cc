#include "runner/picture_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ferry::runner {
namespace {

constexpr int64_t kMostPictureSide = 1 << 20;  // in pixels

using Row = std::span<const float>;

void append(std::vector<float>& rows, Row values) {
  rows.insert(rows.end(), values.begin(), values.end());
}

// The features of the grid of a picture without the frame around it. A feature is found by its
// tile and its place inside of the tile. `first` is the first tile of the grid.
class FramedFeatures {
 public:
  FramedFeatures(Row features, int64_t first, Extent grid, Extent framed, int64_t side,
                 size_t width)
      : features_(features),
        first_(first),
        grid_(grid),
        top_((grid.rows * side - framed.rows) / 2),
        left_((grid.columns * side - framed.columns) / 2),
        side_(side),
        width_(width) {}

  Row at(int64_t row, int64_t column) const {
    const int64_t y = top_ + row, x = left_ + column;
    const int64_t tile = first_ + (y / side_) * grid_.columns + x / side_;
    const int64_t inside = (y % side_) * side_ + x % side_;
    const auto number = static_cast<size_t>(tile * (side_ * side_ + 1) + inside);
    return features_.subspan(number * width_, width_);
  }

 private:
  Row features_;
  int64_t first_;
  Extent grid_;
  int64_t top_, left_, side_;
  size_t width_;
};

// The two places of a side of `size` around place `index` of one of `reduced`, and the share of the
// second one. The reference computes in f32.
struct Between {
  int64_t first, second;
  float share;
};
Between between(int64_t index, int64_t size, int64_t reduced) {
  const float ratio = static_cast<float>(size) / static_cast<float>(reduced);
  const float place = std::max(ratio * (static_cast<float>(index) + 0.5F) - 0.5F, 0.0F);
  const int64_t first = std::min(static_cast<int64_t>(place), size - 1);
  const float share = std::clamp(place - static_cast<float>(first), 0.0F, 1.0F);
  return {first, std::min(first + 1, size - 1), share};
}

// Appends a feature between four others, without antialiasing.
void append_between(std::vector<float>& rows, const FramedFeatures& source, const Between& down,
                    const Between& across) {
  const Row a = source.at(down.first, across.first), b = source.at(down.first, across.second);
  const Row c = source.at(down.second, across.first), d = source.at(down.second, across.second);
  const float left = 1 - across.share, top = 1 - down.share;
  for (size_t i = 0; i < a.size(); ++i) {
    const float upper = left * a[i] + across.share * b[i];
    const float lower = left * c[i] + across.share * d[i];
    rows.push_back(top * upper + down.share * lower);
  }
}

bool is_picture(const ImageShape& picture) {
  return std::min(picture.rows, picture.columns) >= 1 &&
         std::max(picture.rows, picture.columns) <= kMostPictureSide;
}

}  // namespace

std::optional<PictureTiles> PictureTiles::in(const packer::Manifest& manifest, const Shape& pixels,
                                             const Shape& features) {
  if (!manifest.image_tiles || pixels.size() != 4 || features.size() != 3) return std::nullopt;
  const std::vector<int64_t>& sides = manifest.image_tiles->resolutions;
  PictureTiles out;
  out.tile = pixels[3];
  out.most_tiles = manifest.image_tiles->most_tiles;
  out.side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(features[1], 1) - 1)));
  for (size_t i = 0; i + 1 < sides.size() && i < 2 * kMaxResolutions; i += 2) {
    out.resolutions.push_back({sides[i], sides[i + 1]});
  }
  const bool whole = std::ranges::all_of(
      out.resolutions, [&](const Extent& size) { return is_resolution(size, out.tile); });
  const bool square = out.side >= 1 && out.rows_of_tile() == features[1];
  if (out.resolutions.empty() || !whole || !square || out.most_tiles < 0) return std::nullopt;
  return out;
}

Status PictureTiles::check(std::span<const ImageShape> pictures, const std::string& where) {
  if (std::ranges::all_of(pictures, is_picture)) return {};
  return bad_input(fmt::format("{}: a picture has a side that is not from 1 to {} pixels", where,
                               kMostPictureSide));
}

Extent PictureTiles::grid_of(const ImageShape& picture) const {
  const Extent size = best_resolution({picture.rows, picture.columns}, resolutions);
  return {size.rows / tile, size.columns / tile};
}

Result<std::vector<int64_t>> PictureTiles::tiles_of(std::span<const ImageShape> pictures,
                                                    int64_t tiles, const std::string& where) const {
  FERRY_RETURN_IF_ERROR(check(pictures, where));
  std::vector<int64_t> counts(pictures.size(), 1);
  if (std::ssize(pictures) == tiles) return counts;
  for (size_t i = 0; i < pictures.size(); ++i) counts[i] = tiles_of(pictures[i]);
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (all == tiles) return counts;
  return bad_input(fmt::format("{}: {} tiles of {} pictures, which by their sizes have {}", where,
                               tiles, pictures.size(), all));
}

int64_t PictureTiles::rows_of(const ImageShape& picture, int64_t tiles) const {
  if (tiles == 1) return rows_of_tile();
  const Extent framed = framed_features({picture.rows, picture.columns}, grid_of(picture), side);
  const Extent kept = reduced_features(framed, side, most_tiles);
  return side * side + kept.rows * (kept.columns + 1);
}

void PictureTiles::pack(std::span<const float> features, const ImageShape& picture, size_t width,
                        std::vector<float>& rows) const {
  const size_t tile_values = static_cast<size_t>(rows_of_tile()) * width;
  if (features.size() == tile_values) return append(rows, features);
  const Extent grid = grid_of(picture);
  const Extent framed = framed_features({picture.rows, picture.columns}, grid, side);
  const Row newline = features.subspan(tile_values - width, width);
  append(rows, features.first(tile_values - width));
  const FramedFeatures source(features, 1, grid, framed, side, width);
  const Extent kept = reduced_features(framed, side, most_tiles);
  for (int64_t row = 0; row < kept.rows; ++row) {
    const Between down = between(row, framed.rows, kept.rows);
    for (int64_t column = 0; column < kept.columns; ++column) {
      if (kept == framed) {
        append(rows, source.at(row, column));
      } else {
        append_between(rows, source, down, between(column, framed.columns, kept.columns));
      }
    }
    append(rows, newline);
  }
}

void PictureTiles::pack_frame(std::span<const float> features, size_t width,
                              std::vector<float>& rows) const {
  const FramedFeatures source(features, 0, {1, 1}, {side, side}, side, width);
  const int64_t kept = (side + 1) / 2;
  for (int64_t row = 0; row < kept; ++row) {
    const Between down = between(row, side, kept);
    for (int64_t column = 0; column < kept; ++column) {
      append_between(rows, source, down, between(column, side, kept));
    }
  }
}

std::vector<float> pool_video(const PictureTiles& tiles, std::span<const float> features,
                              size_t width) {
  std::vector<float> rows;
  const size_t frame = static_cast<size_t>(tiles.rows_of_tile()) * width;
  for (size_t at = 0; at < features.size(); at += frame) {
    tiles.pack_frame(features.subspan(at, frame), width, rows);
  }
  append(rows, features.last(width));
  return rows;
}

Result<std::vector<float>> pack_pictures(const PictureTiles& tiles,
                                         std::span<const ImageShape> pictures,
                                         std::span<const float> features, int64_t width,
                                         const std::string& where) {
  const int64_t size = tiles.rows_of_tile() * width;
  const auto counts =
      FERRY_TRY(tiles.tiles_of(pictures, std::ssize(features) / std::max<int64_t>(size, 1), where));
  std::vector<float> rows;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto own = static_cast<size_t>(counts[i] * size);
    tiles.pack(features.first(own), pictures[i], static_cast<size_t>(width), rows);
    features = features.subspan(own);
  }
  return rows;
}

}  // namespace ferry::runner
