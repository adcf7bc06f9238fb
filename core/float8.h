// Converts the 8-bit floating-point types of the OCP specification to f32.
#pragma once

#include <cstddef>
#include <span>

#include "core/dtype.h"

namespace ferry {

// Converts values of f8_e4m3 (finite, NaN for 0x7f and 0xff), f8_e5m2 or f8_e8m0 (2^(x - 127), NaN
// for 0xff). Returns false and does nothing for another dtype. Both spans have the same size.
bool float8_to_f32(DType dtype, std::span<const std::byte> stored, std::span<float> out);

}  // namespace ferry
