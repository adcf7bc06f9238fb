// Operators on scalars (sizes, positions). They follow Python: floor division and modulo round
// down.
#include <cmath>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

std::optional<int64_t> checked_sub(int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_sub_overflow(a, b, &out)) return std::nullopt;
  return out;
}

Result<Number> exact(std::optional<int64_t> value) {
  if (value) return Number::of_int(*value);
  return bad_input("an integer overflows");
}

Result<Number> divide_integers(ScalarOp op, int64_t a, int64_t b) {
  if (b == 0) return bad_input("integer division by zero");
  if (b == -1) {
    return op == ScalarOp::kMod ? Number::of_int(0) : exact(checked_sub(0, a));
  }
  const bool adjust = a % b != 0 && (a < 0) != (b < 0);
  return Number::of_int(op == ScalarOp::kMod ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0));
}

Number same_kind(int64_t value) { return Number::of_int(value); }
Number same_kind(double value) { return Number::of_double(value); }

// Operators with one rule for integers and reals; nullopt for the others.
template <class T>
std::optional<Number> compare(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::kMax:
      return same_kind(std::max(a, b));
    case ScalarOp::kMin:
      return same_kind(std::min(a, b));
    case ScalarOp::kEq:
      return Number::of_bool(a == b);
    case ScalarOp::kLt:
      return Number::of_bool(a < b);
    case ScalarOp::kLe:
      return Number::of_bool(a <= b);
    case ScalarOp::kGt:
      return Number::of_bool(a > b);
    case ScalarOp::kGe:
      return Number::of_bool(a >= b);
    default:
      return std::nullopt;
  }
}

Result<Number> on_integers(ScalarOp op, int64_t a, int64_t b) {
  if (const std::optional<Number> compared = compare(op, a, b)) return *compared;
  if (op == ScalarOp::kAdd) return exact(checked_add(a, b));
  if (op == ScalarOp::kSub) return exact(checked_sub(a, b));
  if (op == ScalarOp::kMul) return exact(checked_mul(a, b));
  return divide_integers(op, a, b);
}

Result<Number> on_reals(ScalarOp op, double a, double b) {
  if (const std::optional<Number> compared = compare(op, a, b)) return *compared;
  if (op == ScalarOp::kAdd) return Number::of_double(a + b);
  if (op == ScalarOp::kSub) return Number::of_double(a - b);
  if (op == ScalarOp::kMul) return Number::of_double(a * b);
  if (b == 0) return bad_input("division by zero");
  if (op == ScalarOp::kTrueDiv) return Number::of_double(a / b);
  const double quotient = std::floor(a / b);
  return Number::of_double(op == ScalarOp::kMod ? a - quotient * b : quotient);
}

Result<Number> integer_of(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(value >= -kLimit && value < kLimit)) {
    return bad_input(fmt::format("{} is not an integer", value));
  }
  return Number::of_int(static_cast<int64_t>(value));
}

Result<Number> on_one(ScalarOp op, const Number& a) {
  switch (op) {
    case ScalarOp::kNeg:
      return a.is_real() ? Number::of_double(-a.real) : exact(checked_sub(0, a.integer));
    case ScalarOp::kNot:
      return Number::of_bool(a.real == 0);
    case ScalarOp::kToFloat:
      return Number::of_double(a.real);
    default:
      break;
  }
  if (!a.is_real()) return Number::of_int(a.integer);
  switch (op) {
    case ScalarOp::kRound:
      return integer_of(std::nearbyint(a.real));
    case ScalarOp::kCeil:
      return integer_of(std::ceil(a.real));
    case ScalarOp::kFloor:
      return integer_of(std::floor(a.real));
    default:
      return integer_of(std::trunc(a.real));
  }
}

}  // namespace

Status sym_size(const Call& call) {
  const Tensor& self = tensor(call, 0);
  if (self.rank() == 0) return bad_input(fmt::format("{} has no dimensions", describe(self)));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  return set_number(*call.args[2], Number::of_int(self.size(dim)));
}

Status sym_numel(const Call& call) {
  return set_number(*call.args[1], Number::of_int(tensor(call, 0).numel));
}

Status local_scalar(const Call& call) {
  const Tensor& self = tensor(call, 0);
  if (self.numel != 1) return bad_input(fmt::format("{} is not one value", describe(self)));
  return set_number(*call.args[1], load_number(self.dtype, self.data));
}

Status scalar_binary(const Call& call) {
  const ScalarOp op = static_cast<ScalarOp>(call.variant);
  const Number a = number(call, 0);
  const Number b = number(call, 1);
  const bool real = a.is_real() || b.is_real() || op == ScalarOp::kTrueDiv;
  return set_number(*call.args[2], FERRY_TRY(real ? on_reals(op, a.real, b.real)
                                                  : on_integers(op, a.integer, b.integer)));
}

Status scalar_unary(const Call& call) {
  return set_number(*call.args[1],
                    FERRY_TRY(on_one(static_cast<ScalarOp>(call.variant), number(call, 0))));
}

Status scalar_if(const Call& call) {
  return set_number(*call.args[3], number(call, number(call, 0).real != 0 ? 1 : 2));
}

}  // namespace ferry::kernels
