#include "core/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/checked.h"

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

namespace {

// Masks of the exponent bits.
constexpr uint16_t kF16Exponent = 0x7c00;
constexpr uint16_t kBF16Exponent = 0x7f80;
constexpr uint32_t kF32Exponent = 0x7f800000;
constexpr uint64_t kF64Exponent = 0x7ff0000000000000;

template <class Bits>
[[gnu::always_inline]] inline bool all_set(const std::byte* at, Bits exponent) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  return (bits & exponent) == exponent;
}

// Counts in blocks, because a sum as narrow as the values becomes vector code.
template <class Bits>
[[gnu::always_inline]] inline uint64_t count_in_blocks(std::span<const std::byte> values,
                                                       Bits exponent) {
  constexpr size_t kBlock = 4096;
  uint64_t total = 0;
  for (size_t left = values.size() / sizeof(Bits); left > 0;) {
    const size_t block = std::min(left, kBlock);
    Bits found = 0;
    for (size_t i = 0; i < block; ++i) {
      found = static_cast<Bits>(found + all_set(values.data() + i * sizeof(Bits), exponent));
    }
    total += found;
    left -= block;
    values = values.subspan(block * sizeof(Bits));
  }
  return total;
}

#if defined(__x86_64__)
template <class Bits>
[[gnu::target("avx2")]] uint64_t count_by_avx2(std::span<const std::byte> values, Bits exponent) {
  return count_in_blocks(values, exponent);
}
#endif

template <class Bits>
uint64_t count(std::span<const std::byte> values, Bits exponent) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return count_by_avx2(values, exponent);
#endif
  return count_in_blocks(values, exponent);
}

}  // namespace

uint64_t count_non_finite(DType dtype, std::span<const std::byte> values) {
  switch (dtype) {
    case DType::kF16:
      return count(values, kF16Exponent);
    case DType::kBF16:
      return count(values, kBF16Exponent);
    case DType::kF32:
      return count(values, kF32Exponent);
    case DType::kF64:
      return count(values, kF64Exponent);
    default:
      return 0;
  }
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<uint64_t> bytes_of(DType dtype, const Shape& shape) {
  const auto count = checked_numel(shape);
  const auto bits = count ? checked_mul(*count, int64_t{dtype_bits(dtype)}) : std::nullopt;
  const int64_t row = shape.empty() ? 1 : shape.back() % 8;
  if (!bits || row * dtype_bits(dtype) % 8 != 0) return std::nullopt;
  return static_cast<uint64_t>(*bits) / 8;
}

}  // namespace ferry
