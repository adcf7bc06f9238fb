// Element types, their names in each file format, and what depends on them alone: shapes, 8-bit
// floating-point numbers, values that are not finite.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3,  // "fn": finite values only, no infinities
  kF8E5M2,
  kF8E8M0,  // exponent only, a block scale
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kC64,     // two f32
  kF4,      // 4 bits, two to a byte
  kF6E2M3,  // 6 bits per element
  kF6E3M2,  // 6 bits per element
  kI4,  // codes of quantised weights, two to a byte; occurs only in recipes and manifests of Ferry
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;         // the name in reports of Ferry: "bf16"
  std::string_view safetensors;  // "BF16"; empty if the format has no such type
  int bits;                      // per element
  int executorch;                // ScalarType code in .pte and .ptd files; -1 if there is none
};

const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
inline int dtype_bits(DType dtype) { return dtype_info(dtype).bits; }
// Returns the bytes of one element, for types whose size is a whole number of bytes. bytes_of()
// works for all types.
inline int64_t dtype_bytes(DType dtype) { return dtype_info(dtype).bits / 8; }

constexpr bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
// Weights are converted between these types, by way of f32.
constexpr bool is_castable(DType dtype) { return is_half(dtype) || dtype == DType::kF32; }
// Floating-point types that programs compute with.
constexpr bool is_floating(DType dtype) { return is_castable(dtype) || dtype == DType::kF64; }

std::optional<DType> dtype_from_name(std::string_view name);         // "bf16"
std::optional<DType> dtype_from_safetensors(std::string_view name);  // "BF16"
std::optional<DType> dtype_from_executorch(int scalar_type);

// These functions convert single values. f32 to f16 and bf16 rounds to nearest even; NaN stays NaN.
// They are inline and without branches, so that a loop of them becomes vector code.

// Returns a if `condition`, else b. Masks are used because compilers keep a branch around float
// arithmetic, which might trap.
constexpr uint32_t select_bits(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Truncation could clear the payload of a NaN and leave an infinity; setting the quiet bit
  // prevents that.
  const uint32_t nan = (bits >> 16) | 0x40u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(select_bits((bits & 0x7fffffffu) > 0x7f800000u, nan, rounded));
}

inline float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits & 0x7c00u;
  const uint32_t mantissa = bits & 0x3ffu;
  const uint32_t shifted = uint32_t{bits & 0x7fffu} << 13;
  const uint32_t normal = shifted + select_bits(exponent == 0x7c00u, 0x70000000u, 0x38000000u);
  // A subnormal is mantissa * 2^-24, which is exact in f32.
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f);
  return std::bit_cast<float>(sign | select_bits(exponent == 0, subnormal, normal));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the result is subnormal. Adding 0.5 puts the units of 2^-24 at the end of the f32
  // mantissa, so the addition itself rounds to nearest even.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t out = select_bits(magnitude < 0x38800000u, subnormal, normal);
  out = select_bits(magnitude >= 0x477ff000u, 0x7c00u, out);  // rounds to 65536 or more
  out = select_bits(magnitude > 0x7f800000u, nan, out);
  return static_cast<uint16_t>(sign | out);
}

// Convert `count` elements of a castable type to f32 and back. `stored` may have any alignment.
void to_f32(DType dtype, const std::byte* stored, float* out, size_t count);
void from_f32(DType dtype, const float* values, std::byte* out, size_t count);

// Converts values of f8_e4m3 (finite, NaN for 0x7f and 0xff), f8_e5m2 or f8_e8m0 (2^(x - 127), NaN
// for 0xff). Returns false and does nothing for another dtype. Both spans have the same size.
bool float8_to_f32(DType dtype, std::span<const std::byte> stored, std::span<float> out);

// Returns how many of `values` are not finite; 0 for dtypes other than f64, f32, f16 and bf16. It
// runs at the speed of memory, which is little beside a digest of the same bytes.
uint64_t count_non_finite(DType dtype, std::span<const std::byte> values);

using Shape = std::vector<int64_t>;

// "[2, 3]"
std::string to_string(const Shape& shape);

// Returns the bytes of a tensor. nullopt if the elements of a row (the last dimension) do not fill
// whole bytes, if a dimension is negative, and on overflow.
std::optional<uint64_t> bytes_of(DType dtype, const Shape& shape);

}  // namespace ferry
