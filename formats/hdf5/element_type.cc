#include "formats/hdf5/element_type.h"

#include <fmt/format.h>

#include <array>

#include "core/text.h"

namespace ferry::hdf5 {
namespace {

struct IntegerType {
  uint32_t size;
  bool is_signed;
  DType dtype;
};
constexpr std::array<IntegerType, 8> kIntegers = {{{1, true, DType::kI8},
                                                   {1, false, DType::kU8},
                                                   {2, true, DType::kI16},
                                                   {2, false, DType::kU16},
                                                   {4, true, DType::kI32},
                                                   {4, false, DType::kU32},
                                                   {8, true, DType::kI64},
                                                   {8, false, DType::kU64}}};

struct FloatType {
  uint32_t size, exponent_bits, mantissa_bits;
  uint64_t exponent_bias;
  DType dtype;
};
constexpr std::array<FloatType, 3> kFloats = {
    {{2, 5, 10, 15, DType::kF16}, {4, 8, 23, 127, DType::kF32}, {8, 11, 52, 1023, DType::kF64}}};

bool is_plain_float(const ElementType& t, const FloatType& f) {
  const uint32_t bits = 8 * f.size;
  return t.size == f.size && t.precision == bits && t.bit_offset == 0 && t.sign_at == bits - 1 &&
         t.exponent_at == f.mantissa_bits && t.exponent_bits == f.exponent_bits &&
         t.mantissa_at == 0 && t.mantissa_bits == f.mantissa_bits &&
         t.exponent_bias == f.exponent_bias && t.implied_one;
}

Failure unsupported(std::string description) {
  return fail(ErrorCode::kUnsupported, std::move(description));
}

}  // namespace

Result<DType> dtype_of(const ElementType& t, bool bfloat16) {
  switch (t.type_class) {
    case TypeClass::kInteger:
      for (const IntegerType& i : kIntegers) {
        if (t.size == i.size && t.is_signed == i.is_signed && t.precision == 8 * t.size &&
            t.bit_offset == 0) {
          return i.dtype;
        }
      }
      return unsupported(fmt::format("integers of {} bits in {} bytes", t.precision, t.size));
    case TypeClass::kFloat:
      for (const FloatType& f : kFloats) {
        if (is_plain_float(t, f)) return f.dtype;
      }
      return unsupported(fmt::format("floats of {} bytes that are not IEEE's", t.size));
    case TypeClass::kOpaque:
      if (t.size == 2 && bfloat16) return DType::kBF16;
      return unsupported(fmt::format("opaque values of {} bytes, not marked as bfloat16", t.size));
    case TypeClass::kOther:
      break;
  }
  return unsupported(fmt::format("elements of type {}", printable(t.name)));
}

}  // namespace ferry::hdf5
