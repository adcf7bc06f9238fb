#include "packer/non_finite.h"

#include <cmath>
#include <vector>

#include "core/non_finite.h"

namespace ferry::packer {

Result<NonFiniteCount> count_non_finite(const graph::TensorExpr& expr, const TensorSource& source,
                                        uint64_t offset, std::span<const std::byte> tile) {
  NonFiniteCount counted{.stored = count_non_finite(expr.dtype, tile)};
  if (counted.stored == 0 || expr.is_copy() || expr.dtype == DType::kF32) return counted;
  const auto width = static_cast<size_t>(dtype_bytes(expr.dtype));
  graph::TensorExpr before = expr;  // the cast
  before.dtype = DType::kF32;
  std::vector<float> values(tile.size() / width);
  FERRY_RETURN_IF_ERROR(graph::materialize(before, source, offset / width * sizeof(float),
                                           std::as_writable_bytes(std::span(values))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    counted.overflowed += count_non_finite(expr.dtype, tile.subspan(i * width, width));
  }
  return counted;
}

}  // namespace ferry::packer
