#include "kernels/dtypes.h"

#include "kernels/compute.h"

namespace ferry::kernels {
namespace {

int category(DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::kBool ? 0 : 1; }

bool is_signed(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

DType promote_integers(DType a, DType b) {
  if (is_signed(a) && is_signed(b)) return dtype_bits(a) >= dtype_bits(b) ? a : b;
  const DType other = a == DType::kU8 ? b : a;
  const bool byte = a == DType::kU8 || b == DType::kU8;
  if (!byte || !is_signed(other)) return DType::kI64;
  return other == DType::kI8 ? DType::kI16 : other;
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (!is_floating(a)) return promote_integers(a, b);
  if (a == DType::kF64 || b == DType::kF64) return DType::kF64;
  return DType::kF32;  // f32 with a half, or f16 with bf16
}

DType promote(DType a, const Number& b) {
  const int kind = static_cast<int>(b.kind);  // numbered like category()
  if (kind <= category(a)) return a;
  return kind == 2 ? DType::kF32 : DType::kI64;
}

bool can_cast(DType from, DType to) { return category(from) <= category(to); }

template <class C>
void load(DType dtype, const void* from, C* to, int64_t n) {
  if constexpr (std::is_same_v<C, float>) {
    if (is_half(dtype)) return kernels::cast(dtype, from, DType::kF32, to, n);
  }
  dispatch(dtype, [&]<class T>(Tag<T>) {
    const T* source = static_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = widen<C>(source[i]);
  });
}

template <class C>
void store(DType dtype, const C* from, void* to, int64_t n) {
  if constexpr (std::is_same_v<C, float>) {
    if (is_half(dtype)) return kernels::cast(DType::kF32, from, dtype, to, n);
  }
  dispatch(dtype, [&]<class T>(Tag<T>) {
    T* target = static_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) target[i] = narrow<T>(from[i]);
  });
}

template void load(DType, const void*, float*, int64_t);
template void load(DType, const void*, double*, int64_t);
template void load(DType, const void*, int64_t*, int64_t);
template void store(DType, const float*, void*, int64_t);
template void store(DType, const double*, void*, int64_t);
template void store(DType, const int64_t*, void*, int64_t);
template void store(DType, const Bool*, void*, int64_t);

void store_number(DType dtype, const Number& number, void* to) {
  if (number.is_real()) {
    store(dtype, &number.real, to, 1);
  } else {
    store(dtype, &number.integer, to, 1);
  }
}

Number load_number(DType dtype, const void* from) {
  if (is_floating(dtype)) {
    double value;
    load(dtype, from, &value, 1);
    return Number::of_double(value);
  }
  int64_t value;
  load(dtype, from, &value, 1);
  return dtype == DType::kBool ? Number::of_bool(value != 0) : Number::of_int(value);
}

}  // namespace ferry::kernels
