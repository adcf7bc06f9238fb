// Values that are infinite or NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace ferry {

// How many of `values` are not finite; 0 for dtypes that are not f64, f32, f16 or bf16. As fast as
// memory: cheap beside a digest of the same bytes.
uint64_t count_non_finite(DType dtype, std::span<const std::byte> values);

}  // namespace ferry
