// Elementwise operators of one operand.
#include <cmath>
#include <numbers>

#include "kernels/compute.h"
#include "kernels/elementwise.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

constexpr auto kNegate = [](auto v) {
  using T = decltype(v);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(v));  // wraps
  } else {
    return -v;
  }
};
constexpr auto kAbs = [](auto v) { return v < 0 ? kNegate(v) : v == 0 ? decltype(v){0} : v; };
constexpr auto kSign = [](auto v) { return static_cast<decltype(v)>((v > 0) - (v < 0)); };
constexpr auto kRelu = [](auto v) { return v < 0 ? decltype(v){0} : v; };
constexpr auto kBitNot = [](auto v) { return ~v; };
constexpr auto kExp = [](auto v) { return std::exp(v); };
constexpr auto kExpm1 = [](auto v) { return std::expm1(v); };
constexpr auto kLog = [](auto v) { return std::log(v); };
constexpr auto kLog1p = [](auto v) { return std::log1p(v); };
constexpr auto kLog2 = [](auto v) { return std::log2(v); };
constexpr auto kLog10 = [](auto v) { return std::log10(v); };
constexpr auto kSqrt = [](auto v) { return std::sqrt(v); };
constexpr auto kRsqrt = [](auto v) { return 1 / std::sqrt(v); };
constexpr auto kReciprocal = [](auto v) { return 1 / v; };
constexpr auto kSigmoid = [](auto v) { return 1 / (1 + std::exp(-v)); };
constexpr auto kTanh = [](auto v) { return std::tanh(v); };
// Sines and cosines in f32 are those in f64, rounded, so that RoPE does not depend on the C
// library.
constexpr auto kSin = [](auto v) {
  return static_cast<decltype(v)>(std::sin(static_cast<double>(v)));
};
constexpr auto kCos = [](auto v) {
  return static_cast<decltype(v)>(std::cos(static_cast<double>(v)));
};
constexpr auto kTan = [](auto v) { return std::tan(v); };
constexpr auto kSinh = [](auto v) { return std::sinh(v); };
constexpr auto kCosh = [](auto v) { return std::cosh(v); };
constexpr auto kAsin = [](auto v) { return std::asin(v); };
constexpr auto kAcos = [](auto v) { return std::acos(v); };
constexpr auto kAtan = [](auto v) { return std::atan(v); };
constexpr auto kAsinh = [](auto v) { return std::asinh(v); };
constexpr auto kAcosh = [](auto v) { return std::acosh(v); };
constexpr auto kAtanh = [](auto v) { return std::atanh(v); };
constexpr auto kErf = [](auto v) { return std::erf(v); };
constexpr auto kCeil = [](auto v) { return std::ceil(v); };
constexpr auto kFloor = [](auto v) { return std::floor(v); };
constexpr auto kTrunc = [](auto v) { return std::trunc(v); };
constexpr auto kRound = [](auto v) { return std::nearbyint(v); };  // halves to even
constexpr auto kSame = [](auto v) { return v; };
constexpr auto kGelu = [](auto v) {
  using T = decltype(v);
  return v / 2 * (1 + std::erf(v * (std::numbers::sqrt2_v<T> / 2)));
};
constexpr auto kGeluTanh = [](auto v) {
  using T = decltype(v);
  constexpr T kScale = static_cast<T>(0.7978845608028653558798921198687637);  // sqrt(2 / pi)
  return v / 2 * (1 + std::tanh(kScale * (v + static_cast<T>(0.044715) * v * v * v)));
};
constexpr auto kIsZero = [](auto v) { return Bool{static_cast<uint8_t>(v == 0)}; };
constexpr auto kIsNan = [](auto v) { return Bool{static_cast<uint8_t>(v != v)}; };
constexpr auto kIsInf = [](auto v) {
  if constexpr (std::is_integral_v<decltype(v)>) {
    return Bool{0};
  } else {
    return Bool{static_cast<uint8_t>(std::isinf(v))};
  }
};

template <void (*kFast)(const float*, float*, int64_t)>
void fast_f32_row(const RowInput* in, void* out, int64_t n, const RowParams&) {
  float* r = static_cast<float*>(out);
  const float* a = static_cast<const float*>(in[0].values);
  if (in[0].many) return kFast(a, r, n);
  float value;
  kFast(a, &value, 1);
  std::fill_n(r, n, value);
}

template <auto kF>
constexpr RowFns floats() {
  using F = decltype(kF);
  return {unary_row<float, float, F>, unary_row<double, double, F>, nullptr};
}
// The function also serves integers. kInt is given if they have a rule of their own.
template <auto kF, auto kInt = kF>
constexpr RowFns all_types() {
  return {floats<kF>().f32, floats<kF>().f64, unary_row<int64_t, int64_t, decltype(kInt)>};
}
template <auto kF>
constexpr RowFns predicate() {
  using F = decltype(kF);
  return {unary_row<float, Bool, F>, unary_row<double, Bool, F>, unary_row<int64_t, Bool, F>};
}
template <auto kF, void (*kFast)(const float*, float*, int64_t)>
constexpr RowFns fast_floats() {
  return {fast_f32_row<kFast>, floats<kF>().f64, nullptr};
}

// The table is indexed by UnaryOp. Integers without a row are computed as f32.
constexpr struct {
  UnaryOp op;
  RowFns rows;
  RowResult result = RowResult::kSame;
} kUnary[] = {
    {UnaryOp::kNeg, all_types<kNegate>()},
    {UnaryOp::kAbs, all_types<kAbs>()},
    {UnaryOp::kSign, all_types<kSign>()},
    {UnaryOp::kRelu, all_types<kRelu>()},
    {UnaryOp::kBitNot, {nullptr, nullptr, unary_row<int64_t, int64_t, decltype(kBitNot)>}},
    {UnaryOp::kLogicalNot, predicate<kIsZero>(), RowResult::kBool},
    {UnaryOp::kIsNan, predicate<kIsNan>(), RowResult::kBool},
    {UnaryOp::kIsInf, predicate<kIsInf>(), RowResult::kBool},
    {UnaryOp::kCeil, all_types<kCeil, kSame>()},
    {UnaryOp::kFloor, all_types<kFloor, kSame>()},
    {UnaryOp::kRound, all_types<kRound, kSame>()},
    {UnaryOp::kTrunc, all_types<kTrunc, kSame>()},
    {UnaryOp::kExp, fast_floats<kExp, kernels::exp_f32>()},
    {UnaryOp::kExpm1, floats<kExpm1>()},
    {UnaryOp::kLog, floats<kLog>()},
    {UnaryOp::kLog1p, floats<kLog1p>()},
    {UnaryOp::kLog2, floats<kLog2>()},
    {UnaryOp::kLog10, floats<kLog10>()},
    {UnaryOp::kSqrt, floats<kSqrt>()},
    {UnaryOp::kRsqrt, floats<kRsqrt>()},
    {UnaryOp::kReciprocal, floats<kReciprocal>()},
    {UnaryOp::kSigmoid, fast_floats<kSigmoid, kernels::sigmoid_f32>()},
    {UnaryOp::kTanh, floats<kTanh>()},
    {UnaryOp::kSin, floats<kSin>()},
    {UnaryOp::kCos, floats<kCos>()},
    {UnaryOp::kTan, floats<kTan>()},
    {UnaryOp::kSinh, floats<kSinh>()},
    {UnaryOp::kCosh, floats<kCosh>()},
    {UnaryOp::kAsin, floats<kAsin>()},
    {UnaryOp::kAcos, floats<kAcos>()},
    {UnaryOp::kAtan, floats<kAtan>()},
    {UnaryOp::kAsinh, floats<kAsinh>()},
    {UnaryOp::kAcosh, floats<kAcosh>()},
    {UnaryOp::kAtanh, floats<kAtanh>()},
    {UnaryOp::kErf, floats<kErf>()},
    {UnaryOp::kGelu, fast_floats<kGelu, kernels::gelu_f32>()},
    {UnaryOp::kGeluTanh, fast_floats<kGeluTanh, kernels::gelu_tanh_f32>()},
};

Status run_unary(const Call& call, UnaryOp op, Tensor& out) {
  const Tensor& self = tensor(call, 0);
  const auto& entry = kUnary[static_cast<size_t>(op)];
  DType dtype = self.dtype;
  if (entry.rows.i64 == nullptr && !is_floating(dtype)) dtype = DType::kF32;
  if (entry.result == RowResult::kSame && !can_cast(dtype, out.dtype)) {
    return bad_input(
        fmt::format("a result of {} cannot be stored in {}", dtype_name(dtype), describe(out)));
  }
  const Compute compute = compute_type(dtype);
  const RowFn rows = entry.rows.of(compute);
  if (rows == nullptr) return bad_input(fmt::format("not defined for {}", describe(self)));
  const Operand operands[] = {Operand(self)};
  return elementwise(call, operands, out, compute, entry.result, rows);
}

}  // namespace

Status unary(const Call& call) {
  const UnaryOp op = static_cast<UnaryOp>(call.variant);
  if (op == UnaryOp::kBitNot && tensor(call, 0).dtype == DType::kBool) {
    return run_unary(call, UnaryOp::kLogicalNot, tensor(call, 1));
  }
  if (op == UnaryOp::kAbs && tensor(call, 0).dtype == DType::kC64) return complex_magnitude(call);
  return run_unary(call, op, tensor(call, 1));
}

Status gelu(const Call& call) {
  const std::string& approximate = call.args[1]->text;
  if (approximate != "none" && approximate != "tanh") {
    return bad_input("the approximation of gelu must be 'none' or 'tanh'");
  }
  return run_unary(call, approximate == "tanh" ? UnaryOp::kGeluTanh : UnaryOp::kGelu,
                   tensor(call, 2));
}

}  // namespace ferry::kernels
