// Matrices of 8-bit elements, floats or integers, with a scale for each block: fp8 with blocks of
// 128 x 128, a scale for each row, or one for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "converters/quantized/config.h"
#include "core/derived_source.h"

namespace ferry::converters {

// value = (element - zero) * scale, in f32.
struct ScaledWeight {
  size_t weight = 0;                 // entry of i8 or an 8-bit float, (rows, columns)
  size_t scales = 0;                 // entry of floats: one for each block, row by row of blocks
  std::optional<size_t> zeros = {};  // entry of i8, in the order of the scales
  int64_t columns = 0;
  ScaleBlock block = {};  // no size is 0
};

// The caller has checked the shapes of the entries.
std::unique_ptr<Derivation> decode_scaled(const ScaledWeight& weight);

}  // namespace ferry::converters
