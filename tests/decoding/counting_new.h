// Counts allocations by operator new in this program, on all threads.
#pragma once

#include <cstdint>

namespace ferry {

uint64_t allocations();

}  // namespace ferry
