// pixel_values converts tiles to the inputs of a vision encoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/shape.h"
#include "media/tiles.h"

namespace ferry::media {

struct PixelValues {
  Shape shape;
  std::vector<float> values;
  // For Idefics3 only: 1 for every pixel of a tile, 0 for pixels of padding.
  Shape mask_shape = {};
  std::vector<int64_t> mask = {};
};

// The images of one prompt.
using Sample = std::vector<TiledImage>;

// Returns, for Idefics3, [samples, tiles, 3, side, side], in which samples with fewer tiles end
// with tiles of zeros. Returns, for GotOcr2, [tiles of all samples, 3, side, side]. Neither
// `samples` nor a sample is empty.
PixelValues pixel_values(std::span<const Sample> samples, const Settings& settings,
                         Backend backend);

}  // namespace ferry::media
