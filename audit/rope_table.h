// Whether a constant of a program is a table of rotary position embedding.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "core/shape.h"

namespace ferry::audit {

// "cos", "sin", or "" for anything else. A table has a row for each position, [..., positions,
// columns], and values scale * cos(position * frequency of the column), of either sign. Reads the
// first four rows and the last one. `bytes` has all elements of the shape.
std::string_view rope_table(DType dtype, const Shape& shape, std::span<const std::byte> bytes);

}  // namespace ferry::audit
