// Counts values that are not finite in the tiles that a conversion writes. Private to packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"

namespace ferry::packer {

struct NonFiniteCount {
  uint64_t stored = 0;  // values in the tile
  // Stored values that were finite in f32 before the cast to the stored dtype.
  uint64_t overflowed = 0;
  uint64_t unquantized = 0;  // values that would have been quantised
  uint64_t too_large = 0;    // finite values in blocks whose scale exceeds f16
};

// `tile` holds the bytes [offset, offset + tile.size()) of `recipe`. If the tile has values to
// count, which is rare, the source is read again.
Result<NonFiniteCount> count_non_finite(const graph::Recipe& recipe, const TensorSource& source,
                                        uint64_t offset, std::span<const std::byte> tile);

}  // namespace ferry::packer
