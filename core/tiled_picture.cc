#include "core/tiled_picture.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace ferry {
namespace {

double quotient(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

int64_t scaled(int64_t length, double scale) {
  return static_cast<int64_t>(static_cast<double>(length) * scale);
}

// The reference rounds to seven digits, so that a whole number which was missed by a rounding error
// is one.
int64_t scaled_and_rounded(int64_t length, double scale) {
  constexpr double kDigits = 1e7;
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(length) * scale * kDigits) /
                              kDigits);
}

// Floor division of Python, whose remainder is exact.
int64_t floor_divide(int64_t length, double ratio) {
  const auto whole = static_cast<double>(length);
  const double parts = (whole - std::fmod(whole, ratio)) / ratio;
  const double floor = std::floor(parts);
  return static_cast<int64_t>(parts - floor > 0.5 ? floor + 1 : floor);
}

}  // namespace

bool is_resolution(Extent resolution, int64_t tile) {
  const auto whole = [&](int64_t side) {
    return side >= tile && side <= kMaxResolutionSide && side % tile == 0;
  };
  return tile >= 1 && whole(resolution.rows) && whole(resolution.columns) &&
         resolution.area() <= kMaxResolutionArea &&
         (resolution.rows / tile) * (resolution.columns / tile) <= kMaxResolutionTiles;
}

std::vector<Extent> onevision_resolutions() {
  constexpr int64_t kTile = 384, kMost = 6;
  std::vector<Extent> sizes;
  for (int64_t rows = 1; rows <= kMost; ++rows) {
    for (int64_t columns = 1; columns <= kMost; ++columns) {
      sizes.push_back({kTile * rows, kTile * columns});
    }
  }
  return sizes;
}

std::optional<int64_t> most_tiles_of(std::string_view text) {
  constexpr std::string_view kPrefix = "anyres_max_";
  int64_t number = 0;
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 1 && number <= kMaxFewestTiles ? std::optional(number) : std::nullopt;
}

Extent best_resolution(Extent picture, std::span<const Extent> resolutions) {
  Extent best;
  int64_t most = 0, least_waste = std::numeric_limits<int64_t>::max();
  for (const Extent& resolution : resolutions) {
    const double scale = std::min(quotient(resolution.columns, picture.columns),
                                  quotient(resolution.rows, picture.rows));
    const int64_t area = scaled(picture.columns, scale) * scaled(picture.rows, scale);
    const int64_t kept = std::min(area, picture.area());
    const int64_t waste = resolution.area() - kept;
    if (kept < most || (kept == most && waste >= least_waste)) continue;
    most = kept;
    least_waste = waste;
    best = resolution;
  }
  return best;
}

Extent size_inside(Extent picture, Extent resolution) {
  const double across = quotient(resolution.columns, picture.columns);
  const double down = quotient(resolution.rows, picture.rows);
  const auto shorter = [](int64_t side, double scale, int64_t most) {
    return std::min(static_cast<int64_t>(std::ceil(static_cast<double>(side) * scale)), most);
  };
  if (across < down) {
    return {shorter(picture.rows, across, resolution.rows), resolution.columns};
  }
  return {resolution.rows, shorter(picture.columns, down, resolution.columns)};
}

Extent framed_features(Extent picture, Extent tiles, int64_t side) {
  Extent kept = {tiles.rows * side, tiles.columns * side};
  const bool wide = quotient(picture.columns, picture.rows) > quotient(kept.columns, kept.rows);
  if (wide) {
    const double scale = quotient(kept.columns, picture.columns);
    kept.rows -= (kept.rows - scaled_and_rounded(picture.rows, scale)) / 2 * 2;
  } else {
    const double scale = quotient(kept.rows, picture.rows);
    kept.columns -= (kept.columns - scaled_and_rounded(picture.columns, scale)) / 2 * 2;
  }
  return kept;
}

Extent reduced_features(Extent framed, int64_t side, int64_t most_tiles) {
  constexpr double kMost = 1.1;  // times the side of what is allowed
  if (most_tiles == 0) return framed;
  const double ratio = std::sqrt(quotient(framed.area(), most_tiles * side * side));
  if (ratio <= kMost) return framed;
  return {floor_divide(framed.rows, ratio), floor_divide(framed.columns, ratio)};
}

}  // namespace ferry
