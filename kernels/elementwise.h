// Elementwise operators. Broadcasting, mixed dtypes and threads are handled here; an operator is a
// function over a row of values of one type.
#pragma once

#include <span>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"

namespace ferry::kernels {

// An input is a tensor, or a scalar that broadcasts.
struct Operand {
  const std::byte* data;
  DType dtype;
  Dims sizes;
  Number scalar = {};

  explicit Operand(const Tensor& tensor)
      : data(tensor.data), dtype(tensor.dtype), sizes(tensor.sizes) {}
  explicit Operand(const Number& number)
      : data(nullptr), dtype(number.is_real() ? DType::kF64 : DType::kI64), scalar(number) {}
};

// Values of the compute type: n values, or one for all (`many` is false).
struct RowInput {
  const void* values;
  bool many;
};
// Constants of an operator, beyond its inputs.
struct RowParams {
  Number a = {};
  Number b = {};
};
// Writes n results. The output may be the memory of an input.
using RowFn = void (*)(const RowInput* inputs, void* out, int64_t n, const RowParams& params);

// The row functions of an operator by compute type; null if the operator does not support a type.
struct RowFns {
  RowFn f32, f64, i64;
  RowFn of(Compute compute) const {
    return compute == Compute::kF32 ? f32 : compute == Compute::kF64 ? f64 : i64;
  }
};

enum class RowResult : uint8_t { kSame, kBool };

// Computes out = rows(inputs) for at most 3 inputs, which broadcast against each other. `out` is
// resized, and results are converted to its dtype. With kBool the row function writes Bool instead
// of the compute type.
Status elementwise(const Call& call, std::span<const Operand> inputs, Tensor& out, Compute compute,
                   RowResult result, RowFn rows, const RowParams& params = {});

// Computes out = a + alpha * b, both of promoted dtype `common`. It is defined in arithmetic.cc.
Status add_scaled(const Call& call, const Operand& a, const Operand& b, const Number& alpha,
                  DType common, Tensor& out);

// -- row functions made of stateless functors F with `T operator()(T...)`

// The kinds of rows of a binary functor are separate loops, so that each vectorises.
template <class C, class R, class F>
void binary_row(const RowInput* in, void* out, int64_t n, const RowParams&) {
  const C* a = static_cast<const C*>(in[0].values);
  const C* b = static_cast<const C*>(in[1].values);
  R* r = static_cast<R*>(out);
  const F f;
  if (in[0].many && in[1].many) {
    for (int64_t i = 0; i < n; ++i) r[i] = f(a[i], b[i]);
  } else if (in[0].many) {
    const C y = *b;
    for (int64_t i = 0; i < n; ++i) r[i] = f(a[i], y);
  } else if (in[1].many) {
    const C x = *a;
    for (int64_t i = 0; i < n; ++i) r[i] = f(x, b[i]);
  } else {
    const R value = f(*a, *b);
    for (int64_t i = 0; i < n; ++i) r[i] = value;
  }
}

template <class C, class R, class F>
void unary_row(const RowInput* in, void* out, int64_t n, const RowParams&) {
  const C* a = static_cast<const C*>(in[0].values);
  R* r = static_cast<R*>(out);
  const F f;
  if (in[0].many) {
    for (int64_t i = 0; i < n; ++i) r[i] = f(a[i]);
  } else {
    const R value = f(*a);
    for (int64_t i = 0; i < n; ++i) r[i] = value;
  }
}

}  // namespace ferry::kernels
