#include "core/dtype.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace ferry {
namespace {

// The rows are in the order of the enumeration.
constexpr std::array<DTypeInfo, 23> kDTypes = {{
    {DType::kBool, "bool", "BOOL", 8, 11},
    {DType::kU8, "u8", "U8", 8, 0},
    {DType::kI8, "i8", "I8", 8, 1},
    {DType::kU16, "u16", "U16", 16, 27},
    {DType::kI16, "i16", "I16", 16, 2},
    {DType::kU32, "u32", "U32", 32, 28},
    {DType::kI32, "i32", "I32", 32, 3},
    {DType::kU64, "u64", "U64", 64, 29},
    {DType::kI64, "i64", "I64", 64, 4},
    {DType::kF16, "f16", "F16", 16, 5},
    {DType::kBF16, "bf16", "BF16", 16, 15},
    {DType::kF32, "f32", "F32", 32, 6},
    {DType::kF64, "f64", "F64", 64, 7},
    {DType::kF8E4M3, "f8_e4m3", "F8_E4M3", 8, 24},
    {DType::kF8E5M2, "f8_e5m2", "F8_E5M2", 8, 23},
    {DType::kF8E8M0, "f8_e8m0", "F8_E8M0", 8, -1},
    {DType::kF8E4M3FNUZ, "f8_e4m3fnuz", "F8_E4M3FNUZ", 8, 26},
    {DType::kF8E5M2FNUZ, "f8_e5m2fnuz", "F8_E5M2FNUZ", 8, 25},
    {DType::kC64, "c64", "C64", 64, 9},
    {DType::kF4, "f4", "F4", 4, -1},
    {DType::kF6E2M3, "f6_e2m3", "F6_E2M3", 6, -1},
    {DType::kF6E3M2, "f6_e3m2", "F6_E3M2", 6, -1},
    {DType::kI4, "i4", "", 4, -1},
}};

constexpr bool rows_match_enum() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_match_enum());

template <class Predicate>
std::optional<DType> find(Predicate matches) {
  for (const DTypeInfo& info : kDTypes) {
    if (matches(info)) return info.dtype;
  }
  return std::nullopt;
}

// The conversion is a template argument, so that it is inlined and the loop becomes vector code.
template <float (*Convert)(uint16_t)>
void widen(const std::byte* stored, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, stored + i * sizeof(bits), sizeof(bits));
    out[i] = Convert(bits);
  }
}

template <uint16_t (*Convert)(float)>
void narrow(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = Convert(values[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  return find([&](const DTypeInfo& info) { return info.name == name; });
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  if (name.empty()) return std::nullopt;
  return find([&](const DTypeInfo& info) { return info.safetensors == name; });
}

std::optional<DType> dtype_from_executorch(int scalar_type) {
  if (scalar_type < 0) return std::nullopt;
  return find([&](const DTypeInfo& info) { return info.executorch == scalar_type; });
}

void to_f32(DType dtype, const std::byte* stored, float* out, size_t count) {
  if (dtype == DType::kF16) return widen<f16_to_f32>(stored, out, count);
  if (dtype == DType::kBF16) return widen<bf16_to_f32>(stored, out, count);
  std::memcpy(out, stored, count * sizeof(float));
}

void from_f32(DType dtype, const float* values, std::byte* out, size_t count) {
  if (dtype == DType::kF16) return narrow<f32_to_f16>(values, out, count);
  if (dtype == DType::kBF16) return narrow<f32_to_bf16>(values, out, count);
  std::memcpy(out, values, count * sizeof(float));
}

}  // namespace ferry
