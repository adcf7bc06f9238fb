// Elementwise choice between values, and conversion between dtypes.
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

template <class C>
C at(const RowInput& input, int64_t i) {
  return static_cast<const C*>(input.values)[input.many ? i : 0];
}

// The inputs are condition, self, other; the condition is 0 or 1 in the compute type.
template <class C>
void where_row(const RowInput* in, void* out, int64_t n, const RowParams&) {
  for (int64_t i = 0; i < n; ++i) {
    static_cast<C*>(out)[i] = at<C>(in[0], i) != 0 ? at<C>(in[1], i) : at<C>(in[2], i);
  }
}

template <class C>
C limit(const Number& number) {
  return number.is_real() ? narrow<C>(number.real) : static_cast<C>(number.integer);
}

// params.a and params.b are the limits. NaN is kept.
template <class C, bool kMin, bool kMax>
void clamp_row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const C low = limit<C>(params.a);
  const C high = limit<C>(params.b);
  for (int64_t i = 0; i < n; ++i) {
    C value = at<C>(in[0], i);
    if (kMin && value < low) value = low;
    if (kMax && value > high) value = high;
    static_cast<C*>(out)[i] = value;
  }
}

template <bool kMin, bool kMax>
constexpr RowFns clamp_rows() {
  return {clamp_row<float, kMin, kMax>, clamp_row<double, kMin, kMax>,
          clamp_row<int64_t, kMin, kMax>};
}

template <class C>
void same_row(const RowInput* in, void* out, int64_t n, const RowParams&) {
  const C* values = static_cast<const C*>(in[0].values);
  if (in[0].many) {
    std::memmove(out, values, static_cast<size_t>(n) * sizeof(C));
  } else {
    std::fill_n(static_cast<C*>(out), n, *values);
  }
}

constexpr RowFns kWhere = {where_row<float>, where_row<double>, where_row<int64_t>};
constexpr RowFns kSameRows = {same_row<float>, same_row<double>, same_row<int64_t>};

Status choose(const Call& call, const Tensor& condition, const Operand& yes, const Operand& no,
              DType common, Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_dtype(condition, DType::kBool));
  if (!can_cast(common, out.dtype)) {
    return bad_input(
        fmt::format("a result of {} cannot be stored in {}", dtype_name(common), describe(out)));
  }
  const Compute compute = compute_type(common);
  const Operand operands[] = {Operand(condition), yes, no};
  return elementwise(call, operands, out, compute, RowResult::kSame, kWhere.of(compute));
}

// Broadcasts `from` to `sizes` and converts it to the dtype of `out`.
Status convert(const Call& call, const Tensor& from, const Dims& sizes, Tensor& out) {
  if (!(FERRY_TRY(broadcast(from.sizes, sizes)) == sizes)) return require_sizes(from, sizes);
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (from.dtype == out.dtype) {
    copy_expanded(call.pool, from, out);
    return {};
  }
  // Integers are converted through int64, f64 on either side through double, so that nothing is
  // rounded twice.
  Compute compute = compute_type(from.dtype);
  if (compute == Compute::kF32 && out.dtype == DType::kF64) compute = Compute::kF64;
  Operand shape{Number()};  // a scalar that makes the result as large as `sizes`
  shape.sizes = sizes;
  const Operand operands[] = {Operand(from), shape};
  return elementwise(call, operands, out, compute, RowResult::kSame, kSameRows.of(compute));
}

}  // namespace

Status where(const Call& call) {
  const Tensor& a = tensor(call, 1);
  const Tensor& b = tensor(call, 2);
  return choose(call, tensor(call, 0), Operand(a), Operand(b), promote(a.dtype, b.dtype),
                tensor(call, 3));
}

Status masked_fill(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& mask = tensor(call, 1);
  const Dims sizes = FERRY_TRY(broadcast(self.sizes, mask.sizes));
  if (!(sizes == self.sizes)) return require_sizes(mask, self.sizes);
  return choose(call, mask, Operand(number(call, 2)), Operand(self), self.dtype, tensor(call, 3));
}

Status clamp(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const std::optional<Number> low = optional_number(call, 1);
  const std::optional<Number> high = optional_number(call, 2);
  if (!low && !high) return bad_input("clamp needs a limit");
  DType common = self.dtype;
  if (low) common = promote(common, *low);
  if (high) common = promote(common, *high);
  Tensor& out = tensor(call, 3);
  if (!can_cast(common, out.dtype)) {
    return bad_input(
        fmt::format("a result of {} cannot be stored in {}", dtype_name(common), describe(out)));
  }
  const RowFns rows = low && high ? clamp_rows<true, true>()
                      : low       ? clamp_rows<true, false>()
                                  : clamp_rows<false, true>();
  const Compute compute = compute_type(common);
  const Operand operands[] = {Operand(self)};
  return elementwise(call, operands, out, compute, RowResult::kSame, rows.of(compute),
                     {low.value_or(Number()), high.value_or(Number())});
}

Status copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  return convert(call, tensor(call, 1), self.sizes, out);
}

Status copy_inplace(const Call& call) {
  Tensor& self = tensor(call, 0);
  return convert(call, tensor(call, 1), self.sizes, self);
}

Status to_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  return convert(call, self, self.sizes, tensor(call, static_cast<size_t>(call.variant)));
}

Status to_dim_order_copy(const Call& call) {
  FERRY_RETURN_IF_ERROR(require_dim_order(call, 2));
  return to_copy(call);
}

}  // namespace ferry::kernels
