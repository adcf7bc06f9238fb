// Counts the values that are not finite in what a conversion writes, and reports them. Private to
// packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"
#include "packer/weight_files.h"

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

// The names of a written weight for messages.
struct WrittenWeight {
  std::string name;                  // name in the output; empty if it has none
  std::vector<std::string> sources;  // keys of the checkpoint
  DType dtype = DType::kF32;         // dtype as stored
};

// Both spans are indexed by weight. kUnsupported, with every weight, if a cast has made infinities
// of finite values, or if NaN or infinity was quantised.
Status check_values(std::span<const WrittenWeight> weights, std::span<const NonFiniteCount> counts,
                    const TensorSource& source);

// Returns the weights whose stored values are not all finite.
std::vector<NonFiniteWeight> non_finite_weights(std::span<const WrittenWeight> weights,
                                                std::span<const NonFiniteCount> counts);

}  // namespace ferry::packer
