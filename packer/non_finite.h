// Values that are not finite in the tiles that a conversion writes. Private to packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"

namespace ferry::packer {

struct NonFiniteCount {
  uint64_t stored = 0;       // in the tile
  uint64_t overflowed = 0;   // of these, finite in f32 before the cast to the stored dtype
  uint64_t unquantized = 0;  // of the values that would have been quantised
  uint64_t too_large = 0;    // finite values in blocks whose scale f16 cannot hold
};

// `tile` holds bytes [offset, offset + tile.size()) of `recipe`. Reads the source again where there
// is something to count, which is rare.
Result<NonFiniteCount> count_non_finite(const graph::Recipe& recipe, const TensorSource& source,
                                        uint64_t offset, std::span<const std::byte> tile);

}  // namespace ferry::packer
