// The operators that can be executed: full operator name -> kernel.
#pragma once

#include <span>
#include <string_view>

#include "kernels/call.h"

namespace ferry::kernels {

// nullptr for an operator without a kernel.
const Kernel* find_kernel(std::string_view full_name);
// All of them, sorted by name.
std::span<const Kernel> all_kernels();

}  // namespace ferry::kernels
