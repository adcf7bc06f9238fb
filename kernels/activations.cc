// Elementwise operators with parameters of their own, and gated halves.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/compute.h"
#include "kernels/elementwise.h"
#include "kernels/kernels.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

template <class C>
C value_at(const RowInput& in, int64_t i) {
  return static_cast<const C*>(in.values)[in.many ? i : 0];
}

template <class C>
C parameter(const Number& number) {
  return static_cast<C>(number.real);
}

template <class C>
void leaky_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const C slope = parameter<C>(params.a);
  for (int64_t i = 0; i < n; ++i) {
    const C x = value_at<C>(in[0], i);
    static_cast<C*>(out)[i] = x > 0 ? x : x * slope;
  }
}

// `a` is alpha times scale, `b` scale; the third parameter is an operand.
template <class C>
void elu_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const C low = parameter<C>(params.a), high = parameter<C>(params.b);
  const C input_scale = value_at<C>(in[1], 0);
  for (int64_t i = 0; i < n; ++i) {
    const C x = value_at<C>(in[0], i);
    static_cast<C*>(out)[i] = x <= 0 ? std::expm1(x * input_scale) * low : x * high;
  }
}

// The values are first limited to [a, b].
template <class C>
void logit_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const C low = parameter<C>(params.a), high = parameter<C>(params.b);
  for (int64_t i = 0; i < n; ++i) {
    const C x = value_at<C>(in[0], i);
    const C limited = x < low ? low : x > high ? high : x;
    static_cast<C*>(out)[i] = std::log(limited / (1 - limited));
  }
}

// The limits are operands; `a` says whether there is a lower one. NaN anywhere gives NaN.
template <class C>
void limit_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const bool has_low = params.a.integer != 0, has_high = params.b.integer != 0;
  for (int64_t i = 0; i < n; ++i) {
    C x = value_at<C>(in[0], i);
    if (has_low) {
      const C low = value_at<C>(in[1], i);
      x = x < low || low != low ? low : x;
    }
    if (has_high) {
      const C high = value_at<C>(in[has_low ? 2 : 1], i);
      x = x > high || high != high ? high : x;
    }
    static_cast<C*>(out)[i] = x;
  }
}

// A gate or up that is one value for the row is repeated.
void gated_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  constexpr int64_t kChunk = 256;
  const auto activation = static_cast<GateActivation>(params.a.integer);
  float one_value[2][kChunk];
  for (size_t k = 0; k < 2; ++k) {
    if (!in[k].many) std::fill_n(one_value[k], kChunk, *static_cast<const float*>(in[k].values));
  }
  const auto from = [&](size_t k, int64_t at) {
    return in[k].many ? static_cast<const float*>(in[k].values) + at : one_value[k];
  };
  const bool whole = in[0].many && in[1].many;
  for (int64_t at = 0; at < n;) {
    const int64_t count = whole ? n : std::min(kChunk, n - at);
    gated_product_f32(activation, from(0, at), from(1, at), static_cast<float*>(out) + at, count);
    at += count;
  }
}

constexpr RowFns kLeaky = {leaky_row<float>, leaky_row<double>, nullptr};
constexpr RowFns kElu = {elu_row<float>, elu_row<double>, nullptr};
constexpr RowFns kLogit = {logit_row<float>, logit_row<double>, nullptr};
constexpr RowFns kLimitRows = {limit_row<float>, limit_row<double>, limit_row<int64_t>};

Status on_floats(const Call& call, std::span<const Operand> inputs, DType dtype, const RowFns& rows,
                 const RowParams& params, Tensor& out) {
  if (!is_floating(dtype)) return bad_input(fmt::format("an activation of {}", dtype_name(dtype)));
  const Compute compute = compute_type(dtype);
  return elementwise(call, inputs, out, compute, RowResult::kSame, rows.of(compute), params);
}

}  // namespace

Status leaky_relu(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Operand inputs[] = {Operand(self)};
  return on_floats(call, inputs, self.dtype, kLeaky, {number(call, 1)}, tensor(call, 2));
}

Status elu(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const double scale = number(call, 2).real;
  const Operand inputs[] = {Operand(self), Operand(Number::of_double(number(call, 3).real))};
  return on_floats(call, inputs, self.dtype, kElu,
                   {Number::of_double(number(call, 1).real * scale), Number::of_double(scale)},
                   tensor(call, 4));
}

Status logit(const Call& call) {
  const Tensor& self = tensor(call, 0);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::optional<Number> eps = optional_number(call, 1);
  const Operand inputs[] = {Operand(self)};
  return on_floats(call, inputs, self.dtype, kLogit,
                   {Number::of_double(eps ? eps->real : -kInfinity),
                    Number::of_double(eps ? 1 - eps->real : kInfinity)},
                   tensor(call, 2));
}

Status gated_product(const Call& call) {
  const Tensor &gate = tensor(call, 0), &up = tensor(call, 1);
  Operand inputs[] = {Operand(gate), Operand(up)};
  // One that broadcasts may lie in the memory of `out`.
  std::vector<std::byte> copies[2];
  if (!std::ranges::equal(gate.sizes.span(), up.sizes.span())) {
    for (size_t k = 0; k < 2; ++k) {
      const Tensor& input = tensor(call, static_cast<int>(k));
      copies[k].assign(input.data, input.data + input.bytes());
      inputs[k].data = copies[k].data();
    }
  }
  return elementwise(call, inputs, tensor(call, 2), Compute::kF32, RowResult::kSame, gated_row,
                     {Number::of_int(call.variant)});
}

// self, min?, max? -> out
Status clamp_tensors(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor *low = optional_tensor(call, 1), *high = optional_tensor(call, 2);
  Tensor& out = tensor(call, 3);
  if (low == nullptr && high == nullptr) return bad_input("clamp needs a limit");
  DType common = self.dtype;
  std::vector<Operand> inputs = {Operand(self)};
  for (const Tensor* limit : {low, high}) {
    if (limit == nullptr) continue;
    common = promote(common, limit->dtype);
    inputs.emplace_back(*limit);
  }
  if (!can_cast(common, out.dtype)) {
    return bad_input(
        fmt::format("a result of {} cannot be stored in {}", dtype_name(common), describe(out)));
  }
  const Compute compute = compute_type(common);
  return elementwise(call, inputs, out, compute, RowResult::kSame, kLimitRows.of(compute),
                     {Number::of_bool(low != nullptr), Number::of_bool(high != nullptr)});
}

// self, other, mode? -> out
Status divide_rounded(const Call& call) {
  Value* const args[] = {call.args[0], call.args[1], call.args[3]};
  BinaryOp op = BinaryOp::kDiv;
  if (call.args[2]->kind != Value::Kind::kNone) {
    const std::string& mode = call.args[2]->text;
    if (mode != "floor" && mode != "trunc") return bad_input("a rounding that is not known");
    op = mode == "floor" ? BinaryOp::kFloorDiv : BinaryOp::kTruncDiv;
  }
  const Call plain{args, static_cast<int>(op), call.pool};
  return call.variant == 1 ? binary_scalar(plain) : binary_tensor(plain);
}

// self, dim -> out: the first half times the sigmoid of the second
Status glu(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  if (self.rank() == 0 || self.size(dim) % 2 != 0 || !is_floating(self.dtype)) {
    return bad_input(fmt::format("{} has no halves", describe(self)));
  }
  Dims sizes = self.sizes;
  sizes[dim] /= 2;
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  int64_t half = sizes[dim];
  for (int d = dim + 1; d < self.rank(); ++d) half *= self.size(d);
  dispatch(compute_type(self.dtype), [&]<class C>(Tag<C>) {
    if constexpr (std::is_floating_point_v<C>) {
      const InputValues<C> from(self);
      OutputValues<C> to(out);
      for (int64_t i = 0; i < out.numel; ++i) {
        const int64_t at = i / half * 2 * half + i % half;
        to[i] = from[at] / (1 + std::exp(-from[at + half]));
      }
      to.finish();
    }
  });
  return {};
}

}  // namespace ferry::kernels
