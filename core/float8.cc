#include "core/float8.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace ferry {
namespace {

using Table = std::array<float, 256>;

// Returns 2^exponent for the exponent of a normal f32 or of the smallest f32 subnormals.
constexpr float power_of_two(int exponent) {
  if (exponent < -126) return std::bit_cast<float>(uint32_t{1} << (exponent + 149));
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// Returns the absolute value of a code with an exponent and `bits` bits of mantissa. The value is
// subnormal if the exponent is 0.
constexpr float magnitude(int code, int bits, int bias) {
  const int exponent = code >> bits, mantissa = code & ((1 << bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa | (1 << bits);
  const int power = (exponent == 0 ? 1 : exponent) - bias - bits;
  return static_cast<float>(whole) * power_of_two(power);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr Table make_e4m3() {
  Table table = {};
  for (int code = 0; code < 128; ++code) {
    const float value = code == 0x7f ? kNaN : magnitude(code, 3, 7);
    table[static_cast<size_t>(code)] = value;
    table[static_cast<size_t>(code) + 128] = -value;
  }
  return table;
}

constexpr Table make_e5m2() {
  Table table = {};
  for (int code = 0; code < 128; ++code) {
    const float value = code > 0x7c ? kNaN : code == 0x7c ? kInfinity : magnitude(code, 2, 15);
    table[static_cast<size_t>(code)] = value;
    table[static_cast<size_t>(code) + 128] = -value;
  }
  return table;
}

constexpr Table make_e8m0() {
  Table table = {};
  for (int code = 0; code < 255; ++code)
    table[static_cast<size_t>(code)] = power_of_two(code - 127);
  table[255] = kNaN;
  return table;
}

constexpr Table kE4M3 = make_e4m3();
constexpr Table kE5M2 = make_e5m2();
constexpr Table kE8M0 = make_e8m0();

const Table* table_of(DType dtype) {
  if (dtype == DType::kF8E4M3) return &kE4M3;
  if (dtype == DType::kF8E5M2) return &kE5M2;
  return dtype == DType::kF8E8M0 ? &kE8M0 : nullptr;
}

}  // namespace

bool float8_to_f32(DType dtype, std::span<const std::byte> stored, std::span<float> out) {
  const Table* table = table_of(dtype);
  if (table == nullptr) return false;
  for (size_t i = 0; i < out.size(); ++i) out[i] = (*table)[std::to_integer<size_t>(stored[i])];
  return true;
}

}  // namespace ferry
