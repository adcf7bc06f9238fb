// pixel_values converts tiles to the inputs of a vision encoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
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

// Idefics3: returns [samples, tiles, 3, side, side], in which samples with fewer tiles end with
// tiles of zeros. GotOcr2: returns [tiles of all samples, 3, side, side]. The samples are not
// empty.
PixelValues pixel_values(std::span<const Sample> samples, const Settings& settings,
                         Backend backend);

}  // namespace ferry::media
