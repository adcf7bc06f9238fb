#include "media/pixel_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace ferry::media {
namespace {

// The value of each of the 256 levels in each channel. Every operation rounds once to f32.
using Levels = std::array<std::array<float, 256>, 3>;

// torchvision's backend merges the rescaling factor into mean and standard deviation.
float fused_value(int level, double mean, double deviation, double rescale) {
  const auto scale = static_cast<float>(1.0 / rescale);
  const float shift = static_cast<float>(mean) * scale;
  const float divisor = static_cast<float>(deviation) * scale;
  return (static_cast<float>(level) - shift) / divisor;
}

float plain_value(int level, double mean, double deviation, double rescale) {
  const auto value = static_cast<float>(level * rescale);
  return (value - static_cast<float>(mean)) / static_cast<float>(deviation);
}

// Without normalisation torchvision multiplies in f32, Pillow's backend in f64.
float scaled_value(int level, double rescale, Backend backend) {
  return backend == Backend::kTorchvision ? static_cast<float>(level) * static_cast<float>(rescale)
                                          : static_cast<float>(level * rescale);
}

Levels levels_of(const Settings& s, Backend backend) {
  const auto value = backend == Backend::kTorchvision ? fused_value : plain_value;
  Levels levels;
  if (!s.normalize) {
    for (int i = 0; i < 256; ++i) {
      const float scaled = scaled_value(i, s.rescale, backend);
      for (auto& channel : levels) channel[static_cast<size_t>(i)] = scaled;
    }
    return levels;
  }
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 256; ++i) {
      levels[c][i] = value(static_cast<int>(i), s.mean[c], s.std[c], s.rescale);
    }
  }
  return levels;
}

void append_planes(std::vector<float>& out, const Image& tile, const Levels& levels) {
  const size_t count = tile.rgb.size() / 3;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < count; ++i) out.push_back(levels[c][tile.rgb[3 * i + c]]);
  }
}

// Appends the patches of a picture, block by block: each channel by channel, frame by frame. Where
// there are fewer frames than a patch has, the last is repeated.
void append_blocks(std::vector<float>& out, std::span<const Image> pictures, const Settings& s,
                   const Levels& levels) {
  const auto append_patch = [&](int row, int column) {
    for (size_t c = 0; c < 3; ++c) {
      const size_t size = size_t(s.patch) * size_t(s.patch);
      for (size_t frame = 0; frame < size_t(s.frames); ++frame) {
        if (frame >= pictures.size()) {
          for (size_t i = 0; i < size; ++i) out.push_back(out[out.size() - size]);
          continue;
        }
        for (int y = row * s.patch; y < (row + 1) * s.patch; ++y) {
          const uint8_t* from = pictures[frame].row(y) + size_t{3} * size_t(column * s.patch);
          for (int x = 0; x < s.patch; ++x) out.push_back(levels[c][from[3 * size_t(x) + c]]);
        }
      }
    }
  };
  const Size size = pictures.front().size;
  for (int top = 0; top < size.height / s.patch; top += s.merge) {
    for (int left = 0; left < size.width / s.patch; left += s.merge) {
      for (int at = 0; at < s.merge * s.merge; ++at) {
        append_patch(top + at / s.merge, left + at % s.merge);
      }
    }
  }
}

PixelValues block_values(std::span<const Sample> samples, const Settings& s, const Levels& levels) {
  PixelValues out;
  int64_t patches = 0;
  for (const Sample& sample : samples) {
    for (const TiledImage& image : sample) {
      out.grids.insert(out.grids.end(), {1, image.grid.rows, image.grid.columns});
      patches += int64_t{image.grid.rows} * image.grid.columns;
    }
  }
  const int64_t values = int64_t{3} * s.frames * s.patch * s.patch;
  out.shape = {patches, values};
  out.values.reserve(static_cast<size_t>(patches * values));
  for (const Sample& sample : samples) {
    for (const TiledImage& image : sample) append_blocks(out.values, image.tiles, s, levels);
  }
  return out;
}

size_t tiles_in(const Sample& sample) {
  size_t count = 0;
  for (const TiledImage& image : sample) count += image.tiles.size();
  return count;
}

size_t most_tiles(std::span<const Sample> samples) {
  size_t most = 0;
  for (const Sample& sample : samples) most = std::max(most, tiles_in(sample));
  return most;
}

size_t all_tiles(std::span<const Sample> samples) {
  size_t count = 0;
  for (const Sample& sample : samples) count += tiles_in(sample);
  return count;
}

void append_sample(PixelValues& out, const Sample& sample, const Levels& levels) {
  for (const TiledImage& image : sample) {
    for (const Image& tile : image.tiles) append_planes(out.values, tile, levels);
  }
}

// Appends the patches of a tile, row by row.
void append_patches(PixelValues& out, const Image& tile, const Settings& s, const Levels& levels) {
  const int rows = tile.size.height / s.patch, columns = tile.size.width / s.patch;
  for (int patch = 0; patch < rows * columns; ++patch) {
    const int top = patch / columns * s.patch, left = patch % columns * s.patch;
    for (int y = top; y < top + s.patch; ++y) {
      const uint8_t* row = tile.row(y) + size_t{3} * static_cast<size_t>(left);
      for (size_t i = 0; i < size_t{3} * static_cast<size_t>(s.patch); ++i) {
        out.values.push_back(levels[i % 3][row[i]]);
      }
    }
  }
  out.spatial_shapes.push_back(rows);
  out.spatial_shapes.push_back(columns);
  out.mask.insert(out.mask.end(), static_cast<size_t>(rows * columns), 1);
}

// Gemma4 has the column and the row of each patch in the place of the mask, and -1 for padding.
void place_patches(PixelValues& out) {
  const int64_t tiles = out.shape[0], patches = out.shape[1];
  out.position_shape = {tiles, patches, 2};
  for (size_t tile = 0; tile < static_cast<size_t>(tiles); ++tile) {
    const std::vector<int64_t> places =
        patch_places(out.spatial_shapes[2 * tile], out.spatial_shapes[2 * tile + 1], patches);
    out.positions.insert(out.positions.end(), places.begin(), places.end());
  }
  out.mask_shape = {};
  out.mask = {};
}

PixelValues patch_values(std::span<const Sample> samples, const Settings& s, const Levels& levels) {
  const auto patches = static_cast<size_t>(s.max_patches());
  const size_t width = size_t{3} * static_cast<size_t>(s.patch * s.patch);
  PixelValues out;
  size_t tiles = 0;
  for (const Sample& sample : samples) {
    for (const TiledImage& image : sample) {
      for (const Image& tile : image.tiles) {
        append_patches(out, tile, s, levels);
        tiles += 1;
        out.values.resize(tiles * patches * width, 0.0F);
        out.mask.resize(tiles * patches, 0);
      }
    }
  }
  const auto n = static_cast<int64_t>(tiles);
  out.shape = {n, s.max_patches(), static_cast<int64_t>(width)};
  out.mask_shape = {n, s.max_patches()};
  if (s.kind == ProcessorKind::kGemma4) place_patches(out);
  return out;
}

// Appends the planes of an image, padded with zeros to `size`.
void append_padded(std::vector<float>& out, const Image& image, Size size, const Levels& levels) {
  for (size_t c = 0; c < 3; ++c) {
    for (int y = 0; y < size.height; ++y) {
      const int columns = y < image.size.height ? image.size.width : 0;
      const uint8_t* row = columns > 0 ? image.row(y) : nullptr;
      for (int x = 0; x < columns; ++x)
        out.push_back(levels[c][row[3 * static_cast<size_t>(x) + c]]);
      out.insert(out.end(), static_cast<size_t>(size.width - columns), 0.0F);
    }
  }
}

PixelValues padded_values(std::span<const Sample> samples, const Levels& levels) {
  PixelValues out;
  Size size;
  for (const Sample& sample : samples) {
    for (const TiledImage& image : sample) {
      const auto [width, height] = image.tiles.front().size;
      size = {std::max(size.width, width), std::max(size.height, height)};
      out.image_sizes.insert(out.image_sizes.end(), {height, width});
    }
  }
  for (const Sample& sample : samples) {
    for (const TiledImage& image : sample) {
      append_padded(out.values, image.tiles.front(), size, levels);
    }
  }
  out.shape = {std::ssize(out.image_sizes) / 2, 3, size.height, size.width};
  return out;
}

PixelValues tiled_values(std::span<const Sample> samples, const Settings& s, const Levels& levels) {
  const size_t area = static_cast<size_t>(s.tile) * static_cast<size_t>(s.tile);
  size_t most = 0;
  int64_t images = 0;
  for (const Sample& sample : samples) {
    for (const TiledImage& image : sample) most = std::max(most, image.tiles.size());
  }
  PixelValues out;
  for (const Sample& sample : samples) {
    if (s.pads_many) out.image_counts.push_back(std::ssize(sample));
    for (const TiledImage& image : sample) {
      for (const Image& tile : image.tiles) append_planes(out.values, tile, levels);
      out.values.insert(out.values.end(), (most - image.tiles.size()) * 3 * area, 0.0F);
      out.image_sizes.insert(out.image_sizes.end(), {image.original.height, image.original.width});
      images += 1;
    }
  }
  out.shape = {images, static_cast<int64_t>(most), 3, s.tile, s.tile};
  return out;
}

}  // namespace

PixelValues pixel_values(std::span<const Sample> samples, const Settings& settings,
                         Backend backend) {
  const Levels levels = levels_of(settings, backend);
  if (settings.kind == ProcessorKind::kPixtral) return padded_values(samples, levels);
  if (settings.kind == ProcessorKind::kPinpoints) return tiled_values(samples, settings, levels);
  if (settings.any_shape()) return block_values(samples, settings, levels);
  if (settings.has_patches()) return patch_values(samples, settings, levels);
  const auto side = static_cast<size_t>(settings.tile), area = side * side;
  const size_t tiles = settings.has_mask() ? most_tiles(samples) : all_tiles(samples);
  PixelValues out;
  out.values.reserve((settings.has_mask() ? samples.size() : 1) * tiles * 3 * area);
  for (const Sample& sample : samples) {
    append_sample(out, sample, levels);
    if (!settings.has_mask()) continue;
    const size_t own = tiles_in(sample), padding = tiles - own;
    out.values.insert(out.values.end(), padding * 3 * area, 0.0F);
    out.mask.insert(out.mask.end(), own * area, 1);
    out.mask.insert(out.mask.end(), padding * area, 0);
  }
  const auto n = static_cast<int64_t>(samples.size()), t = static_cast<int64_t>(tiles);
  const int64_t s = settings.tile;
  out.shape = settings.has_mask() ? Shape{n, t, 3, s, s} : Shape{t, 3, s, s};
  if (settings.has_mask()) out.mask_shape = {n, t, s, s};
  return out;
}

std::vector<int64_t> patch_places(int64_t rows, int64_t columns, int64_t patches) {
  std::vector<int64_t> places(static_cast<size_t>(2 * patches), -1);
  for (int64_t patch = 0; patch < rows * columns; ++patch) {
    places[static_cast<size_t>(2 * patch)] = patch % columns;
    places[static_cast<size_t>(2 * patch) + 1] = patch / columns;
  }
  return places;
}

std::vector<float> group_values(std::span<const Image> frames, const Settings& settings,
                                Backend backend) {
  const Size size = frames.front().size;
  std::vector<float> out;
  out.reserve(size_t{3} * static_cast<size_t>(settings.frames) * static_cast<size_t>(size.width) *
              static_cast<size_t>(size.height));
  append_blocks(out, frames, settings, levels_of(settings, backend));
  return out;
}

}  // namespace ferry::media
