// rope_table() recognises constants that are tables of rotary position embedding (RoPE).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace ferry::audit {

// Returns "cos", "sin", or "" for a constant that is no such table. A table has the shape [...,
// positions, columns] and the values scale * cos(position * frequency of the column), of either
// sign. Reads the first four rows and the last one. `bytes` holds all elements of `shape`.
std::string_view rope_table(DType dtype, const Shape& shape, std::span<const std::byte> bytes);

}  // namespace ferry::audit
