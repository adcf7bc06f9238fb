// Element types, and what each file format calls them.
#pragma once

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
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;         // ours, in reports: "bf16"
  std::string_view safetensors;  // "BF16"
  int bits;                      // per element
  int executorch;                // ScalarType code of .pte/.ptd, -1 where there is none
};

const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
inline int dtype_bits(DType dtype) { return dtype_info(dtype).bits; }
// Bytes of one element; only for types whose size is a whole number of bytes.
inline int64_t dtype_bytes(DType dtype) { return dtype_info(dtype).bits / 8; }

std::optional<DType> dtype_from_name(std::string_view name);         // "bf16"
std::optional<DType> dtype_from_safetensors(std::string_view name);  // "BF16"
std::optional<DType> dtype_from_executorch(int scalar_type);

// Conversions of single values; f32 -> f16/bf16 round to nearest even, NaN stays NaN.
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

}  // namespace ferry
