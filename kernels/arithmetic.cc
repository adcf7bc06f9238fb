// Elementwise operators of two operands: arithmetic, comparison, logic, bits.
#include <cmath>

#include "kernels/compute.h"
#include "kernels/elementwise.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

// Integer arithmetic wraps, as in torch.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};
struct ReverseSub {
  template <class T>
  T operator()(T a, T b) const {
    return Sub()(b, a);
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
// The caller has refused integer divisors of zero.
struct FloorDiv {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == -1) return Sub()(T{0}, a);
      return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
    } else {
      return std::floor(a / b);
    }
  }
};
struct TruncDiv {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b == -1 ? Sub()(T{0}, a) : a / b;
    } else {
      return std::trunc(a / b);
    }
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == -1) return 0;
      const T rest = a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    } else {
      const T rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
  }
};
struct Fmod {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b == -1 ? T{0} : a % b;
    } else {
      return std::fmod(a, b);
    }
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;  // NaN is kept
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};
struct Pow {
  template <class T>
  T operator()(T base, T exponent) const {
    if constexpr (std::is_integral_v<T>) {
      if (exponent < 0) return base == 1 ? 1 : base == -1 ? ((exponent & 1) != 0 ? -1 : 1) : 0;
      T result = 1;
      for (; exponent > 0; exponent >>= 1, base = Mul()(base, base)) {
        if ((exponent & 1) != 0) result = Mul()(result, base);
      }
      return result;
    } else {
      if (exponent == T{2}) return base * base;
      return std::pow(base, exponent);
    }
  }
};
struct Atan2 {
  template <class T>
  T operator()(T a, T b) const {
    return std::atan2(a, b);
  }
};
struct BitAnd {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct BitOr {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct BitXor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};

// A shift by less than 0 or by all bits of a number leaves nothing of it but its sign, as in torch.
struct ShiftLeft {
  int64_t operator()(int64_t a, int64_t b) const {
    if (b < 0 || b > 63) return 0;
    return static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  }
};
struct ShiftRight {
  int64_t operator()(int64_t a, int64_t b) const { return a >> (b < 0 || b > 63 ? 63 : b); }
};

// Applies predicates to T. `Truth` makes their result storable.
template <class P>
struct Truth {
  template <class T>
  Bool operator()(T a, T b) const {
    return Bool{static_cast<uint8_t>(P()(a, b))};
  }
};
struct LogicalAnd {
  template <class T>
  bool operator()(T a, T b) const {
    return a != T{0} && b != T{0};
  }
};
struct LogicalOr {
  template <class T>
  bool operator()(T a, T b) const {
    return a != T{0} || b != T{0};
  }
};
struct LogicalXor {
  template <class T>
  bool operator()(T a, T b) const {
    return (a != T{0}) != (b != T{0});
  }
};

// f32 rows of equal length use the vectorised kernel, others the plain loops.
template <void (*kFast)(const float*, const float*, float*, int64_t), class F>
void fast_binary_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  if (in[0].many && in[1].many) {
    kFast(static_cast<const float*>(in[0].values), static_cast<const float*>(in[1].values),
          static_cast<float*>(out), n);
  } else {
    binary_row<float, float, F>(in, out, n, params);
  }
}

template <class F>
constexpr RowFns binary_all_types() {
  return {binary_row<float, float, F>, binary_row<double, double, F>,
          binary_row<int64_t, int64_t, F>};
}
template <class F>
constexpr RowFns binary_floats() {
  return {binary_row<float, float, F>, binary_row<double, double, F>, nullptr};
}
template <class F>
constexpr RowFns integers() {
  return {nullptr, nullptr, binary_row<int64_t, int64_t, F>};
}
template <class P>
constexpr RowFns binary_predicate() {
  return {binary_row<float, Bool, Truth<P>>, binary_row<double, Bool, Truth<P>>,
          binary_row<int64_t, Bool, Truth<P>>};
}

// The table is indexed by BinaryOp.
constexpr struct {
  BinaryOp op;
  RowFns rows;
  RowResult result = RowResult::kSame;
  bool divides = false;  // an integer divisor must not be zero
} kBinary[] = {
    {BinaryOp::kAdd,
     {fast_binary_row<kernels::add_f32, Add>, binary_all_types<Add>().f64,
      binary_all_types<Add>().i64}},
    {BinaryOp::kSub, binary_all_types<Sub>()},
    {BinaryOp::kReverseSub, binary_all_types<ReverseSub>()},
    {BinaryOp::kMul,
     {fast_binary_row<kernels::mul_f32, Mul>, binary_all_types<Mul>().f64,
      binary_all_types<Mul>().i64}},
    {BinaryOp::kDiv, binary_floats<Div>()},
    {BinaryOp::kFloorDiv, binary_all_types<FloorDiv>(), RowResult::kSame, true},
    {BinaryOp::kRemainder, binary_all_types<Remainder>(), RowResult::kSame, true},
    {BinaryOp::kFmod, binary_all_types<Fmod>(), RowResult::kSame, true},
    {BinaryOp::kMaximum, binary_all_types<Maximum>()},
    {BinaryOp::kMinimum, binary_all_types<Minimum>()},
    {BinaryOp::kPow, binary_all_types<Pow>()},
    {BinaryOp::kAtan2, binary_floats<Atan2>()},
    {BinaryOp::kBitAnd, integers<BitAnd>()},
    {BinaryOp::kBitOr, integers<BitOr>()},
    {BinaryOp::kBitXor, integers<BitXor>()},
    {BinaryOp::kEq, binary_predicate<std::equal_to<>>(), RowResult::kBool},
    {BinaryOp::kNe, binary_predicate<std::not_equal_to<>>(), RowResult::kBool},
    {BinaryOp::kLt, binary_predicate<std::less<>>(), RowResult::kBool},
    {BinaryOp::kLe, binary_predicate<std::less_equal<>>(), RowResult::kBool},
    {BinaryOp::kGt, binary_predicate<std::greater<>>(), RowResult::kBool},
    {BinaryOp::kGe, binary_predicate<std::greater_equal<>>(), RowResult::kBool},
    {BinaryOp::kLogicalAnd, binary_predicate<LogicalAnd>(), RowResult::kBool},
    {BinaryOp::kLogicalOr, binary_predicate<LogicalOr>(), RowResult::kBool},
    {BinaryOp::kLogicalXor, binary_predicate<LogicalXor>(), RowResult::kBool},
    {BinaryOp::kTruncDiv, binary_all_types<TruncDiv>(), RowResult::kSame, true},
    {BinaryOp::kShiftLeft, integers<ShiftLeft>()},
    {BinaryOp::kShiftRight, integers<ShiftRight>()},
};

bool has_zero(const Operand& divisor) {
  if (divisor.data == nullptr) return divisor.scalar.real == 0;
  for (int64_t i = 0, n = numel(divisor.sizes.span()); i < n; ++i) {
    const std::byte* at = divisor.data + i * dtype_bytes(divisor.dtype);
    if (load_number(divisor.dtype, at).real == 0) return true;
  }
  return false;
}

// `common` is the promoted dtype of the operands.
Status run_binary(const Call& call, BinaryOp op, const Operand& a, const Operand& b, DType common,
                  Tensor& out) {
  const auto& entry = kBinary[static_cast<size_t>(op)];
  if (entry.rows.i64 == nullptr && !is_floating(common)) common = DType::kF32;
  const Compute compute = compute_type(common);
  const RowFn rows = entry.rows.of(compute);
  if (rows == nullptr) return bad_input(fmt::format("not defined for {}", dtype_name(common)));
  if (entry.result == RowResult::kSame && !can_cast(common, out.dtype)) {
    return bad_input(
        fmt::format("a result of {} cannot be stored in {}", dtype_name(common), describe(out)));
  }
  if (entry.divides && compute == Compute::kI64 && has_zero(b)) {
    return bad_input("integer division by zero");
  }
  const Operand operands[] = {a, b};
  return elementwise(call, operands, out, compute, entry.result, rows);
}

// Returns b * alpha for a scalar b.
Number scaled(const Number& b, const Number& alpha) {
  if (b.is_real() || alpha.is_real()) return Number::of_double(b.real * alpha.real);
  return Number::of_int(Mul()(b.integer, alpha.integer));
}

// Computes a + alpha * b for a tensor b. It is rare enough for a plain loop.
template <class C>
void add_scaled_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const C* a = static_cast<const C*>(in[0].values);
  const C* b = static_cast<const C*>(in[1].values);
  const C alpha = params.a.is_real() ? narrow<C>(params.a.real) : static_cast<C>(params.a.integer);
  for (int64_t i = 0; i < n; ++i) {
    static_cast<C*>(out)[i] = Add()(a[in[0].many ? i : 0], Mul()(alpha, b[in[1].many ? i : 0]));
  }
}

Number negated(const Number& alpha) {
  return alpha.is_real() ? Number::of_double(-alpha.real)
                         : Number::of_int(Sub()(int64_t{0}, alpha.integer));
}

bool is_one(const Number& alpha) { return alpha.real == 1; }

}  // namespace

Status binary_tensor(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Tensor& b = tensor(call, 1);
  return run_binary(call, static_cast<BinaryOp>(call.variant), Operand(a), Operand(b),
                    promote(a.dtype, b.dtype), tensor(call, 2));
}

Status binary_scalar(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Number b = number(call, 1);
  return run_binary(call, static_cast<BinaryOp>(call.variant), Operand(a), Operand(b),
                    promote(a.dtype, b), tensor(call, 2));
}

Status pow_scalar_base(const Call& call) {
  const Number a = number(call, 0);
  const Tensor& b = tensor(call, 1);
  return run_binary(call, BinaryOp::kPow, Operand(a), Operand(b), promote(b.dtype, a),
                    tensor(call, 2));
}

Status add_alpha(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Tensor& b = tensor(call, 1);
  const Number alpha = number(call, 2);
  const BinaryOp op = static_cast<BinaryOp>(call.variant);
  const DType common = promote(a.dtype, b.dtype);
  Tensor& out = tensor(call, 3);
  if (is_one(alpha)) return run_binary(call, op, Operand(a), Operand(b), common, out);
  if (alpha.is_real() && !is_floating(common)) {
    return bad_input("alpha must be an integer for integer tensors");
  }
  return add_scaled(call, Operand(a), Operand(b), op == BinaryOp::kSub ? negated(alpha) : alpha,
                    common, out);
}

Status add_scaled(const Call& call, const Operand& a, const Operand& b, const Number& alpha,
                  DType common, Tensor& out) {
  if (!can_cast(common, out.dtype)) {
    return bad_input(
        fmt::format("a result of {} cannot be stored in {}", dtype_name(common), describe(out)));
  }
  constexpr RowFns kRows = {add_scaled_row<float>, add_scaled_row<double>, add_scaled_row<int64_t>};
  const Compute compute = compute_type(common);
  const Operand operands[] = {a, b};
  return elementwise(call, operands, out, compute, RowResult::kSame, kRows.of(compute), {alpha});
}

Status add_scalar_alpha(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Number other = number(call, 1);
  const Number alpha = number(call, 2);
  const BinaryOp op = static_cast<BinaryOp>(call.variant);
  Tensor& out = tensor(call, 3);
  if (op == BinaryOp::kReverseSub && !is_one(alpha)) {  // other - alpha * self
    return add_scaled(call, Operand(other), Operand(a), negated(alpha), promote(a.dtype, other),
                      out);
  }
  const Number b = is_one(alpha) ? other : scaled(other, alpha);
  return run_binary(call, op, Operand(a), Operand(b), promote(a.dtype, b), out);
}

}  // namespace ferry::kernels
