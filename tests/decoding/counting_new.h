// How often this program has allocated memory with operator new, on any thread.
#pragma once

#include <cstdint>

namespace ferry {

uint64_t allocations();

}  // namespace ferry
