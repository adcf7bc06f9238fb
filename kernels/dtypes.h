// Element types of kernels: the only place where a run-time dtype becomes a C++ type, torch's type
// promotion, and conversion of runs of elements.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "kernels/value.h"

namespace ferry::kernels {

// Storage types without C++ arithmetic. A Bool byte from a file may have any value; all but 0 are
// true.
struct Bool {
  uint8_t byte;
};
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

template <class T>
struct Tag {
  using type = T;
};

// Returns true for the dtypes that kernels compute with. Method::load admits no others.
constexpr bool is_computable(DType dtype) { return dtype <= DType::kF64; }

// Calls f(Tag<storage type>).
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f(Tag<Bool>());
    case DType::kU8:
      return f(Tag<uint8_t>());
    case DType::kI8:
      return f(Tag<int8_t>());
    case DType::kU16:
      return f(Tag<uint16_t>());
    case DType::kI16:
      return f(Tag<int16_t>());
    case DType::kU32:
      return f(Tag<uint32_t>());
    case DType::kI32:
      return f(Tag<int32_t>());
    case DType::kU64:
      return f(Tag<uint64_t>());
    case DType::kI64:
      return f(Tag<int64_t>());
    case DType::kF16:
      return f(Tag<F16>());
    case DType::kBF16:
      return f(Tag<BF16>());
    case DType::kF64:
      return f(Tag<double>());
    default:
      return f(Tag<float>());
  }
}

constexpr bool is_integral(DType dtype) { return dtype != DType::kBool && !is_floating(dtype); }

// Implements torch.promote_types. Unsigned types wider than 8 bits promote with others to i64.
DType promote(DType a, DType b);
// Implements torch.result_type of a tensor and a Python scalar.
DType promote(DType a, const Number& b);
// Returns whether a result of type `from` may be stored as `to` (torch.can_cast).
bool can_cast(DType from, DType to);

// The types in which kernels compute: f16, bf16 and f32 in float, f64 in double, all others in
// int64, which wraps, so that narrower integers wrap as well.
enum class Compute : uint8_t { kF32, kF64, kI64 };
constexpr Compute compute_type(DType dtype) {
  if (dtype == DType::kF64) return Compute::kF64;
  return is_floating(dtype) ? Compute::kF32 : Compute::kI64;
}
// Calls f(Tag<float | double | int64_t>).
template <class F>
decltype(auto) dispatch(Compute compute, F&& f) {
  switch (compute) {
    case Compute::kF64:
      return f(Tag<double>());
    case Compute::kI64:
      return f(Tag<int64_t>());
    default:
      return f(Tag<float>());
  }
}

// Converts float to integer, rounding towards zero. NaN gives 0, and a value out of range the
// nearest limit.
template <class To, class From>
To to_integer(From value) {
  if (std::isnan(value)) return 0;
  const double wide = static_cast<double>(std::trunc(value));
  if (wide <= static_cast<double>(std::numeric_limits<To>::min())) {
    return std::numeric_limits<To>::min();
  }
  if (wide >= static_cast<double>(std::numeric_limits<To>::max())) {
    return std::numeric_limits<To>::max();
  }
  return static_cast<To>(wide);
}

// Converts one stored element to compute type C.
template <class C, class T>
C widen(T value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return static_cast<C>(value.byte != 0);
  } else if constexpr (std::is_same_v<T, F16>) {
    return widen<C>(f16_to_f32(value.bits));
  } else if constexpr (std::is_same_v<T, BF16>) {
    return widen<C>(bf16_to_f32(value.bits));
  } else if constexpr (std::is_integral_v<C> && std::is_floating_point_v<T>) {
    return to_integer<C>(value);
  } else {
    return static_cast<C>(value);
  }
}

// Converts a value of compute type C to one stored element.
template <class T, class C>
T narrow(C value) {
  if constexpr (std::is_same_v<C, Bool>) {
    return narrow<T>(static_cast<int64_t>(value.byte != 0));
  } else if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<uint8_t>(value != 0)};
  } else if constexpr (std::is_same_v<T, F16>) {
    return F16{f32_to_f16(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return BF16{f32_to_bf16(static_cast<float>(value))};
  } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<C>) {
    return to_integer<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Reads n elements of `dtype` at `from` as C: float, double or int64_t.
template <class C>
void load(DType dtype, const void* from, C* to, int64_t n);
// Writes n values of C (float, double, int64_t or Bool) as elements of `dtype`.
template <class C>
void store(DType dtype, const C* from, void* to, int64_t n);

// Returns whether elements of `dtype` are stored as C, so that no conversion is needed.
template <class C>
constexpr bool stored_as(DType dtype) {
  if constexpr (std::is_same_v<C, float>) return dtype == DType::kF32;
  if constexpr (std::is_same_v<C, double>) return dtype == DType::kF64;
  if constexpr (std::is_same_v<C, int64_t>) return dtype == DType::kI64;
  if constexpr (std::is_same_v<C, Bool>) return dtype == DType::kBool;
}

// Writes one scalar as an element of `dtype`.
void store_number(DType dtype, const Number& number, void* to);
// Returns the element at `from` as a scalar of its kind.
Number load_number(DType dtype, const void* from);

}  // namespace ferry::kernels
