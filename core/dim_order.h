// The order in which the dimensions of a stored tensor lie in memory, as ExecuTorch states it:
// outermost first. The identity is row-major; 0, 2, 3, 1 is an image with its channels last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace ferry {

// Whether every dimension is there once.
bool is_permutation(std::span<const uint8_t> order);
bool is_row_major(std::span<const uint8_t> order);

// Returns the sizes in the order in which they lie in memory. `order` is a permutation of the
// dimensions, here and below.
Shape stored_sizes(std::span<const int64_t> sizes, std::span<const uint8_t> order);
// Returns the distance of neighbours in each dimension, in elements.
Shape stored_strides(std::span<const int64_t> sizes, std::span<const uint8_t> order);

// Copies the elements of `stored` to `out` in row-major order. `item` is the size of an element: 1,
// 2, 4, 8 or 16 bytes. `stored` and `out` have the bytes of all of them.
void copy_row_major(std::span<const std::byte> stored, std::span<const int64_t> sizes,
                    std::span<const uint8_t> order, int64_t item, std::byte* out);

}  // namespace ferry
