// Encoding maps the codes of a quantised tensor (u8, u16) to real numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace ferry {

// Returns whether elements of `dtype` are codes.
constexpr bool is_encoded(DType dtype) { return dtype == DType::kU8 || dtype == DType::kU16; }
// Codes of an encoded dtype go from 0 to the result.
constexpr int64_t largest_code(DType dtype) { return dtype == DType::kU8 ? 0xff : 0xffff; }

// real = (code - zero_point) * scale. The real number 0 has a code, so that it is exact.
struct Encoding {
  double scale = 1;
  int64_t zero_point = 0;

  bool operator==(const Encoding&) const = default;

  bool fits(DType dtype) const {
    return is_encoded(dtype) && std::isfinite(scale) && scale > 0 && zero_point >= 0 &&
           zero_point <= largest_code(dtype);
  }
  double real(int64_t code) const { return static_cast<double>(code - zero_point) * scale; }
  // Returns the nearest code, with halves rounded to even, clamped to the codes of `dtype`. The
  // value is rounded before the zero point is added, as in
  // quantized_decomposed::quantize_per_tensor. NaN becomes the zero point.
  int64_t code(double value, DType dtype) const {
    const double steps = std::nearbyint(value / scale);
    const double code = std::isnan(steps) ? static_cast<double>(zero_point)
                                          : steps + static_cast<double>(zero_point);
    return static_cast<int64_t>(std::clamp(code, 0.0, static_cast<double>(largest_code(dtype))));
  }
};

}  // namespace ferry
