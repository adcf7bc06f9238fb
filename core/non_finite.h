// Counts values that are infinite or NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace ferry {

// Returns how many of `values` are not finite; 0 for dtypes other than f64, f32, f16 and bf16. It
// runs at the speed of memory, which is little beside a digest of the same bytes.
uint64_t count_non_finite(DType dtype, std::span<const std::byte> values);

}  // namespace ferry
