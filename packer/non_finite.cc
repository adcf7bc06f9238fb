#include "packer/non_finite.h"

#include <cmath>
#include <vector>

#include "core/non_finite.h"

namespace ferry::packer {

Result<NonFiniteCount> count_non_finite(const graph::Recipe& recipe, const TensorSource& source,
                                        uint64_t offset, std::span<const std::byte> tile) {
  NonFiniteCount counted{.stored = count_non_finite(recipe.output().dtype, tile)};
  if (counted.stored == 0 || recipe.is_copy() || recipe.output().dtype == DType::kF32)
    return counted;
  const auto width = static_cast<size_t>(dtype_bytes(recipe.output().dtype));
  graph::Recipe before = recipe;  // the recipe before the cast
  before.cast(DType::kF32);
  std::vector<float> values(tile.size() / width);
  FERRY_RETURN_IF_ERROR(graph::materialize(before, source, offset / width * sizeof(float),
                                           std::as_writable_bytes(std::span(values))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    counted.overflowed += count_non_finite(recipe.output().dtype, tile.subspan(i * width, width));
  }
  return counted;
}

}  // namespace ferry::packer
