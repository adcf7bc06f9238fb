// How stored elements stand for real numbers: Encoding for the codes of a quantised tensor,
// BlockEncoding for blocks of bytes that pack several elements.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

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

inline constexpr size_t kMaxBlockElements = 256;

// A row is a whole number of blocks. Blocks have no alignment.
struct BlockEncoding {
  std::string_view name;  // in lower case, "q8_0"
  uint32_t elements = 0;  // per block; at most kMaxBlockElements
  uint32_t bytes = 0;     // per block
  // Writes the `elements` values of the block that begins at `block`.
  void (*decode)(const std::byte* block, float* out) = nullptr;
};

// The numbers that the codes of iq4_nl and iq4_xs stand for. Source: llama.cpp, ggml-common.h.
inline constexpr std::array<float, 16> kIq4Numbers = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace ferry
