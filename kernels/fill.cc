// Operators that make values from scalars.
#include <cmath>
#include <cstring>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

Status filled(Tensor& out, const Dims& sizes, const Number& value) {
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  fill(out, value);
  return {};
}

// Writes start, start + step, ... up to but without end.
Status arange_into(const Number& start, const Number& end, const Number& step, Tensor& out) {
  const bool real = start.is_real() || end.is_real() || step.is_real();
  if (!(std::abs(step.real) > 0)) return bad_input("arange has a step of 0");
  const double span = std::ceil((end.real - start.real) / step.real);
  if (!(span >= 0) || span > static_cast<double>(out.capacity)) {
    return bad_input(fmt::format("arange of {} values does not fit {}", span, describe(out)));
  }
  int64_t count = static_cast<int64_t>(span);
  if (!real) {  // exact, because the numbers may be beyond the precision of a double
    int64_t width;
    if (__builtin_sub_overflow(end.integer, start.integer, &width)) {
      return bad_input("arange is out of range");
    }
    count = width / step.integer + (width % step.integer != 0 ? 1 : 0);
  }
  FERRY_RETURN_IF_ERROR(resize(out, {count}));
  std::byte* at = out.data;
  for (int64_t i = 0; i < count; ++i, at += out.element_bytes()) {
    const double real_value = start.real + static_cast<double>(i) * step.real;
    store_number(
        out.dtype,
        real ? Number::of_double(real_value) : Number::of_int(start.integer + i * step.integer),
        at);
  }
  return {};
}

}  // namespace

void fill(Tensor& out, const Number& value) {
  if (out.numel == 0) return;
  store_number(out.dtype, value, out.data);
  // Each copy doubles the part that is filled.
  const size_t total = static_cast<size_t>(out.bytes());
  for (size_t done = static_cast<size_t>(out.element_bytes()); done < total;) {
    const size_t more = std::min(done, total - done);
    std::memcpy(out.data + done, out.data, more);
    done += more;
  }
}

Status full(const Call& call) {
  return filled(tensor(call, 2), FERRY_TRY(int_list(call, 0)), number(call, 1));
}

Status fill_constant(const Call& call) {
  const size_t out = call.variant >= 2 ? 2 : 1;
  return filled(tensor(call, out), FERRY_TRY(int_list(call, 0)), Number::of_int(call.variant & 1));
}

Status full_like(const Call& call) {
  return filled(tensor(call, 3), tensor(call, 0).sizes, number(call, 1));
}

Status fill_scalar(const Call& call) {
  return filled(tensor(call, 2), tensor(call, 0).sizes, number(call, 1));
}

Status fill_tensor(const Call& call) {
  const Tensor& value = tensor(call, 1);
  if (value.numel != 1) return bad_input(fmt::format("{} is not one value", describe(value)));
  return filled(tensor(call, 2), tensor(call, 0).sizes, load_number(value.dtype, value.data));
}

Status scalar_tensor(const Call& call) { return filled(tensor(call, 1), {}, number(call, 0)); }

Status arange(const Call& call) {
  return arange_into(Number::of_int(0), number(call, 0), Number::of_int(1), tensor(call, 1));
}

Status arange_start(const Call& call) {
  return arange_into(number(call, 0), number(call, 1), number(call, 2), tensor(call, 3));
}

}  // namespace ferry::kernels
