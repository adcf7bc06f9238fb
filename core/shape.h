// Concrete tensor shapes: row-major, outermost dimension first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {

using Shape = std::vector<int64_t>;

// "[2, 3]"
std::string to_string(const Shape& shape);

}  // namespace ferry
