// Concrete tensor shapes: row-major, outermost dimension first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace ferry {

using Shape = std::vector<int64_t>;

// "[2, 3]"
std::string to_string(const Shape& shape);

// Returns the bytes of a tensor. nullopt if the elements of a row (the last dimension) do not fill
// whole bytes, if a dimension is negative, and on overflow.
std::optional<uint64_t> bytes_of(DType dtype, const Shape& shape);

}  // namespace ferry
