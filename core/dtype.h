// Element types, and what each file format calls them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

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
  kF8E4M3,  // "fn": finite, no infinities
  kF8E5M2,
  kF8E8M0,  // exponent only, a block scale
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kC64,     // two f32
  kF4,      // 4 bits, two to a byte
  kF6E2M3,  // 6 bits
  kF6E3M2,  // 6 bits
  kI4,      // codes of quantised weights, two to a byte; of our recipes and manifests only
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;         // ours, in reports: "bf16"
  std::string_view safetensors;  // "BF16", empty where there is none
  int bits;                      // per element
  int executorch;                // ScalarType code of .pte/.ptd, -1 where there is none
};

const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
inline int dtype_bits(DType dtype) { return dtype_info(dtype).bits; }
// Bytes of one element; only for types whose size is a whole number of bytes. bytes_of() in
// core/shape.h is for all of them.
inline int64_t dtype_bytes(DType dtype) { return dtype_info(dtype).bits / 8; }

constexpr bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
// The types that weights are converted from and to, by way of f32.
constexpr bool is_castable(DType dtype) { return is_half(dtype) || dtype == DType::kF32; }
// The floating-point types that are computed with.
constexpr bool is_floating(DType dtype) { return is_castable(dtype) || dtype == DType::kF64; }

std::optional<DType> dtype_from_name(std::string_view name);         // "bf16"
std::optional<DType> dtype_from_safetensors(std::string_view name);  // "BF16"
std::optional<DType> dtype_from_executorch(int scalar_type);

// Conversions of single values; f32 -> f16/bf16 round to nearest even, NaN stays NaN. Inline and
// without branches, so that a loop of them becomes vector code.

// a if `condition`, else b. With masks, because compilers keep a branch around float arithmetic,
// which might trap.
constexpr uint32_t select_bits(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Truncation could clear the payload of a NaN and leave an infinity; the quiet bit prevents it.
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
  // Subnormal: mantissa * 2^-24, exact in f32.
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

// `count` elements of a castable type to f32, and back. `stored` may have any alignment.
void to_f32(DType dtype, const std::byte* stored, float* out, size_t count);
void from_f32(DType dtype, const float* values, std::byte* out, size_t count);

}  // namespace ferry
