// hadamard_rotate: the rotation R3 of queries and keys, on numbers in memory (SpinQuant, arXiv
// 2405.16406).
#pragma once

#include <cstddef>
#include <span>

namespace ferry {

// Multiplies each row of `width` values by Sylvester's Hadamard matrix over sqrt(width), which is
// its own inverse. `width` is a power of two; what is left of `values` after whole rows stays.
void hadamard_rotate(std::span<float> values, size_t width);

}  // namespace ferry
