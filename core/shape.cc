#include "core/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry {

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace ferry
