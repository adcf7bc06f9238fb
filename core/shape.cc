#include "core/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/checked.h"

namespace ferry {

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<uint64_t> bytes_of(DType dtype, const Shape& shape) {
  const auto count = checked_numel(shape);
  const auto bits = count ? checked_mul(*count, int64_t{dtype_bits(dtype)}) : std::nullopt;
  const int64_t row = shape.empty() ? 1 : shape.back() % 8;
  if (!bits || row * dtype_bits(dtype) % 8 != 0) return std::nullopt;
  return static_cast<uint64_t>(*bits) / 8;
}

}  // namespace ferry
