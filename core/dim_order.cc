#include "core/dim_order.h"

#include <algorithm>
#include <cstring>

#include "core/strided.h"

namespace ferry {

bool is_permutation(std::span<const uint8_t> order) {
  uint64_t seen = 0;
  for (const uint8_t dim : order) {
    if (dim >= order.size() || dim >= 64 || (seen >> dim & 1) != 0) return false;
    seen |= uint64_t{1} << dim;
  }
  return true;
}

bool is_row_major(std::span<const uint8_t> order) { return std::ranges::is_sorted(order); }

Shape stored_sizes(std::span<const int64_t> sizes, std::span<const uint8_t> order) {
  Shape out;
  for (const uint8_t dim : order) out.push_back(sizes[dim]);
  return out;
}

Shape stored_strides(std::span<const int64_t> sizes, std::span<const uint8_t> order) {
  Shape strides(sizes.size(), 1);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0; stride *= sizes[order[i]]) strides[order[i]] = stride;
  return strides;
}

void copy_row_major(std::span<const std::byte> stored, std::span<const int64_t> sizes,
                    std::span<const uint8_t> order, int64_t item, std::byte* out) {
  const Shape strides = stored_strides(sizes, order);
  StridedPiece piece;
  for (size_t dim = 0; dim < sizes.size(); ++dim) add_axis(piece, {sizes[dim], strides[dim]});
  const auto read = [&](uint64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), stored.data() + offset, to.size());
    return Status();
  };
  // Reading from memory cannot fail.
  if (piece.count() > 0) static_cast<void>(gather(piece, item, 0, piece.count(), read, out));
}

}  // namespace ferry
