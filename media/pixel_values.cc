#include "media/pixel_values.h"

#include <algorithm>
#include <array>

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

Levels levels_of(const Settings& s, Backend backend) {
  const auto value = backend == Backend::kTorchvision ? fused_value : plain_value;
  Levels levels;
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

}  // namespace

PixelValues pixel_values(std::span<const Sample> samples, const Settings& settings,
                         Backend backend) {
  const Levels levels = levels_of(settings, backend);
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

}  // namespace ferry::media
