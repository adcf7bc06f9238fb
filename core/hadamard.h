// hadamard_rotate applies the rotation R3 of SpinQuant (arXiv 2405.16406) to queries and keys in
// memory.
#pragma once

#include <cstddef>
#include <span>

namespace ferry {

// Multiplies each row of `width` values by Sylvester's Hadamard matrix divided by sqrt(width),
// which is its own inverse. `width` is a power of two. Values after the last whole row stay
// unchanged.
void hadamard_rotate(std::span<float> values, size_t width);

}  // namespace ferry
