// The table of executable operators maps a full operator name to a kernel.
#pragma once

#include <span>
#include <string_view>

#include "kernels/call.h"

namespace ferry::kernels {

// Returns nullptr for an operator without a kernel.
const Kernel* find_kernel(std::string_view full_name);
// Returns all kernels, sorted by name.
std::span<const Kernel> all_kernels();

}  // namespace ferry::kernels
