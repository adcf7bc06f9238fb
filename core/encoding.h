// Encoding: how the codes of a quantised tensor (u8, u16) stand for real numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace ferry {

// The dtypes whose elements are codes.
constexpr bool is_encoded(DType dtype) { return dtype == DType::kU8 || dtype == DType::kU16; }
// Codes of an encoded dtype go from 0 to this one.
constexpr int64_t largest_code(DType dtype) { return dtype == DType::kU8 ? 0xff : 0xffff; }

// real = (code - zero_point) * scale. Zero is a code, so it is exact.
struct Encoding {
  double scale = 1;
  int64_t zero_point = 0;

  bool operator==(const Encoding&) const = default;

  bool fits(DType dtype) const {
    return is_encoded(dtype) && std::isfinite(scale) && scale > 0 && zero_point >= 0 &&
           zero_point <= largest_code(dtype);
  }
  double real(int64_t code) const { return static_cast<double>(code - zero_point) * scale; }
  // The nearest code, halves to even, clamped to those of `dtype`. The rounding comes before the
  // zero point, as in quantized_decomposed::quantize_per_tensor; NaN becomes the zero point.
  int64_t code(double value, DType dtype) const {
    const double steps = std::nearbyint(value / scale);
    const double code = std::isnan(steps) ? static_cast<double>(zero_point)
                                          : steps + static_cast<double>(zero_point);
    return static_cast<int64_t>(std::clamp(code, 0.0, static_cast<double>(largest_code(dtype))));
  }
};

}  // namespace ferry
