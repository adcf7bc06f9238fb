// Cuts pictures into tiles, and computes the sizes of tiles.
#include "media/pixel_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "media/picture_parts.h"

namespace ferry::media {
namespace {

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

int parts_of(int length, int parts) { return (length + parts - 1) / parts; }

// The last part of a picture is what the others, of equal size, leave of it.
template <class Resize>
TiledImage cut_gemma3(const Image& image, const Settings& s, const Resize& to) {
  const Size whole{s.tile, s.tile}, all = image.size;
  TiledImage out = single(to(image, whole));
  out.grid = s.pan_and_scan ? gemma3_grid(all) : Grid{};
  if (out.grid == Grid{}) return out;
  const Size size{parts_of(all.width, out.grid.columns), parts_of(all.height, out.grid.rows)};
  for (int top = 0; top < all.height; top += size.height) {
    for (int left = 0; left < all.width; left += size.width) {
      const Size rest{std::min(size.width, all.width - left),
                      std::min(size.height, all.height - top)};
      out.tiles.push_back(to(part(image, left, top, rest), whole));
    }
  }
  return out;
}

// A picture whose sides differ by more is refused by the reference.
Status check_sides(Size image) {
  constexpr double kMostRatio = 200;
  const double longer = std::max(image.width, image.height);
  if (longer / std::min(image.width, image.height) <= kMostRatio) return {};
  return bad_input(
      fmt::format("{} x {} pixels: one side is more than {} times as long as the other",
                  image.width, image.height, kMostRatio));
}

template <class Resize>
Result<TiledImage> cut_qwen2vl(const Image& image, const Settings& s, const Resize& to) {
  FERRY_RETURN_IF_ERROR(check_sides(image.size));
  const Size size = qwen2vl_size(image.size, s);
  TiledImage out = single(to(image, size));
  out.grid = {size.width / s.patch, size.height / s.patch};
  return out;
}

template <class Resize>
Result<TiledImage> cut_pixtral(const Image& image, const Settings& s, const Resize& to) {
  const Size size = pixtral_size(image.size, s);
  if (size.width == 0 || size.height == 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a picture of {} x {} pixels is too narrow to become {} x {} at most",
                            image.size.width, image.size.height, s.fixed.width, s.fixed.height));
  }
  TiledImage out = single(to(image, size));
  out.grid = {size.width / s.patch, size.height / s.patch};
  return out;
}

// The reference chooses between two grids with equally many tiles and equally near shapes by the
// order of a set of Python. Such a picture is refused.
Status check_choice(Size image, Grid grid, const Settings& s) {
  const double shape = static_cast<double>(image.width) / image.height;
  const double nearest = std::abs(shape - static_cast<double>(grid.columns) / grid.rows);
  const int tiles = grid.columns * grid.rows;
  for (int columns = 1; columns <= tiles; ++columns) {
    if (tiles % columns != 0 || columns == grid.columns) continue;
    const int rows = tiles / columns;
    if (std::abs(shape - static_cast<double>(columns) / rows) != nearest) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("a picture of {} x {} pixels with {} to {} tiles: the reference has no "
                            "rule for the choice of {} x {} or {} x {} tiles",
                            image.width, image.height, s.least_patches, s.most_patches,
                            grid.columns, grid.rows, columns, rows));
  }
  return {};
}

// The thumbnail is the original image, scaled down.
template <class Resize>
Result<TiledImage> cut_lfm2(const Image& image, const Settings& s, const Resize& to) {
  const Size whole = lfm2_size(image.size, s);
  const int64_t patches = (int64_t{whole.width} / s.patch) * (whole.height / s.patch);
  if (patches > s.max_patches()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a picture of {} x {} pixels becomes {} patches, where {} are the most "
                            "of the processor",
                            image.size.width, image.size.height, patches, s.max_patches()));
  }
  const bool split = s.split && s.most_patches > 1;
  if (!split || !lfm2_is_large(image.size, s)) return single(to(image, whole));
  const Grid grid = gotocr2_grid(image.size, s.tile, s.least_patches, s.most_patches);
  FERRY_RETURN_IF_ERROR(check_choice(image.size, grid, s));
  TiledImage out{grid, parts(to(image, {grid.columns * s.tile, grid.rows * s.tile}), grid, s.tile)};
  if (s.thumbnail) out.tiles.push_back(to(image, whole));
  return out;
}

template <class Resize>
Result<TiledImage> cut_gemma4(const Image& image, const Settings& s, const Resize& to) {
  return single(to(image, FERRY_TRY(gemma4_size(image.size, s))));
}

// Returns the size whose shorter side is `shortest`.
Size by_shortest_edge(Size image, int shortest) {
  const bool wide = image.width > image.height;
  const double longer = wide ? image.width : image.height;
  const double shorter = wide ? image.height : image.width;
  const auto length = static_cast<int>(shortest * longer / shorter);
  return wide ? Size{length, shortest} : Size{shortest, length};
}

// Where the middle of a side begins; negative where the side is too short. Of an odd rest, the
// backends leave the greater half on other sides of a picture that is too small.
int middle(int side, int wanted, Backend backend) {
  if (side >= wanted) return (side - wanted) / 2;
  return backend == Backend::kPil ? -((wanted - side + 1) / 2) : -((wanted - side) / 2);
}

template <class Resize>
Result<TiledImage> cut_clip(const Image& image, const Settings& s, Backend backend,
                            const Resize& to) {
  if (s.pad_square && image.size.width != image.size.height) {
    Settings rest = s;
    rest.pad_square = false;
    return cut_clip(FERRY_TRY(pad_to_square(image, s.mean)), rest, backend, to);
  }
  const bool fixed = s.shortest_edge == 0;
  const int64_t shorter = std::min(image.size.width, image.size.height);
  const int64_t longer = std::max(image.size.width, image.size.height);
  const int64_t length = fixed ? s.tile : s.shortest_edge * longer / shorter;
  if (length > kMaxSide) {
    return bad_input(
        fmt::format("a picture of {} x {} pixels becomes {} pixels long, where {} are "
                    "the limit",
                    image.size.width, image.size.height, length, kMaxSide));
  }
  Image whole =
      to(image, fixed ? Size{s.tile, s.tile} : by_shortest_edge(image.size, s.shortest_edge));
  if (s.centre.width == 0) return single(std::move(whole));
  return single(window(whole, middle(whole.size.width, s.centre.width, backend),
                       middle(whole.size.height, s.centre.height, backend), s.centre, {}));
}

}  // namespace

std::vector<int64_t> TiledImage::tokens(const Settings& settings) const {
  std::vector<int64_t> counts;
  if (settings.kind == ProcessorKind::kPinpoints) return {pinpoint_tokens(*this, settings)};
  if (!settings.has_patches() && !settings.any_shape()) return counts;
  const int64_t side = int64_t{settings.patch} * settings.merge;
  if (settings.kind == ProcessorKind::kPixtral) {
    const Size& size = tiles.front().size;
    return std::vector<int64_t>(static_cast<size_t>(size.height / side), size.width / side);
  }
  for (const Image& tile : tiles) {
    counts.push_back((tile.size.width / side) * (tile.size.height / side));
  }
  return counts;
}

Result<TiledImage> cut(const Image& image, const Settings& settings, Backend backend,
                       ThreadPool& pool) {
  const auto to = [&](const Image& from, Size size) {
    return resize(from, size, settings.filter, backend, pool);
  };
  if (settings.kind == ProcessorKind::kLfm2Vl && backend == Backend::kPil) {
    return fail(ErrorCode::kUnsupported, "this image processor has no backend pil");
  }
  switch (settings.kind) {
    case ProcessorKind::kIdefics3:
      return cut_idefics3(image, settings, to);
    case ProcessorKind::kGotOcr2:
      return cut_gotocr2(image, settings, to);
    case ProcessorKind::kQwen2Vl:
      return cut_qwen2vl(image, settings, to);
    case ProcessorKind::kClip:
      return cut_clip(image, settings, backend, to);
    case ProcessorKind::kLfm2Vl:
      return cut_lfm2(image, settings, to);
    case ProcessorKind::kPixtral:
      return cut_pixtral(image, settings, to);
    case ProcessorKind::kGemma4:
      return cut_gemma4(image, settings, to);
    case ProcessorKind::kPinpoints:
      return cut_pinpoints(image, settings, backend, pool);
    case ProcessorKind::kGemma3:
      break;
  }
  return cut_gemma3(image, settings, to);
}

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

// The numbers are those of Gemma3Processor.
Grid gemma3_grid(Size image) {
  constexpr double kLeastRatio = 1.2;
  constexpr int kMostParts = 4, kLeastSide = 256;
  const int longer = std::max(image.width, image.height);
  const int shorter = std::min(image.width, image.height);
  const double shape = static_cast<double>(longer) / shorter;
  if (shape < kLeastRatio) return {};
  const int fitting = std::min(static_cast<int>(shape + 0.5), longer / kLeastSide);
  const int count = std::min(std::max(fitting, 2), kMostParts);
  if (std::min(parts_of(longer, count), shorter) < kLeastSide) return {};
  return image.width >= image.height ? Grid{count, 1} : Grid{1, count};
}

Size pixtral_size(Size image, const Settings& s) {
  const double ratio = std::max(static_cast<double>(image.height) / s.fixed.height,
                                static_cast<double>(image.width) / s.fixed.width);
  const int side = s.patch * s.merge;
  const auto whole = [&](int length) {
    if (ratio > 1) length = static_cast<int>(std::floor(length / ratio));
    return whole_tiles(length, side);
  };
  return {whole(image.width), whole(image.height)};
}

// The source is smart_resize() of the reference. Halves are rounded to even.
Size qwen2vl_size(Size image, const Settings& s) {
  const double factor = s.patch * s.merge;
  const double height = image.height, width = image.width;
  const auto whole = [&](double parts) { return static_cast<int64_t>(parts) * s.patch * s.merge; };
  int64_t high = whole(std::nearbyint(height / factor));
  int64_t wide = whole(std::nearbyint(width / factor));
  if (high * wide > s.most_pixels) {
    const double beta = std::sqrt(height * width / s.most_pixels);
    high = whole(std::max(std::floor(height / beta / factor), 1.0));
    wide = whole(std::max(std::floor(width / beta / factor), 1.0));
  } else if (high * wide < s.least_pixels) {
    const double beta = std::sqrt(s.least_pixels / (height * width));
    high = whole(std::ceil(height * beta / factor));
    wide = whole(std::ceil(width * beta / factor));
  }
  return {static_cast<int>(wide), static_cast<int>(high)};
}

namespace {

// As the function round() of Python: halves go to the even number.
int64_t rounded(int length, int64_t step) {
  return static_cast<int64_t>(
             std::nearbyint(static_cast<double>(length) / static_cast<double>(step))) *
         step;
}

int64_t pixels_of(int64_t tokens, const Settings& s) {
  return tokens * s.patch * s.patch * s.merge * s.merge;
}

}  // namespace

Size lfm2_size(Size image, const Settings& s) {
  const int64_t step = int64_t{s.patch} * s.merge;
  const double area = static_cast<double>(image.width) * image.height;
  const int64_t least = pixels_of(s.least_tokens, s), most = pixels_of(s.most_tokens, s);
  int64_t height = std::max(step, rounded(image.height, step));
  int64_t width = std::max(step, rounded(image.width, step));
  const auto steps = [&](double length) { return static_cast<int64_t>(length) * step; };
  const auto count = static_cast<double>(step);
  if (height * width > most) {
    const double beta = std::sqrt(area / static_cast<double>(most));
    height = std::max(step, steps(std::floor(image.height / beta / count)));
    width = std::max(step, steps(std::floor(image.width / beta / count)));
  } else if (height * width < least) {
    const double beta = std::sqrt(static_cast<double>(least) / area);
    height = steps(std::ceil(image.height * beta / count));
    width = steps(std::ceil(image.width * beta / count));
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

// The source is get_aspect_ratio_preserving_size() of the reference.
Result<Size> gemma4_size(Size image, const Settings& s) {
  const int64_t step = int64_t{s.patch} * s.merge;
  const int64_t most = pixels_of(s.most_tokens, s);
  const double height = image.height, width = image.width;
  const double factor = std::sqrt(static_cast<double>(most) / (height * width));
  const auto steps = [&](double length) {
    return static_cast<int64_t>(std::floor(length / static_cast<double>(step))) * step;
  };
  int64_t high = steps(factor * height), wide = steps(factor * width);
  if (high == 0 && wide == 0) {
    return bad_input(
        fmt::format("a picture of {} x {} pixels becomes one of 0 x 0", image.width, image.height));
  }
  const auto along = [&](double longer, double shorter) {
    return std::min(static_cast<int64_t>(std::floor(longer / shorter)), int64_t{s.most_tokens}) *
           step;
  };
  if (high == 0) {
    high = step;
    wide = along(width, height);
  } else if (wide == 0) {
    wide = step;
    high = along(height, width);
  }
  return Size{static_cast<int>(wide), static_cast<int>(high)};
}

bool lfm2_is_large(Size image, const Settings& s) {
  const int64_t step = int64_t{s.patch} * s.merge;
  const int64_t height = std::max<int64_t>(s.patch, rounded(image.height, step));
  const int64_t width = std::max<int64_t>(s.patch, rounded(image.width, step));
  const auto most = static_cast<double>(pixels_of(s.most_tokens, s));
  return static_cast<double>(height * width) > most * s.tolerance;
}

Result<Size> processed_size(Size picture, const Settings& settings) {
  switch (settings.kind) {
    case ProcessorKind::kQwen2Vl:
      return qwen2vl_size(picture, settings);
    case ProcessorKind::kPixtral:
      return pixtral_size(picture, settings);
    case ProcessorKind::kGemma4:
      return gemma4_size(picture, settings);
    case ProcessorKind::kLfm2Vl:
      return lfm2_size(picture, settings);
    default:
      return picture;
  }
}

}  // namespace ferry::media
