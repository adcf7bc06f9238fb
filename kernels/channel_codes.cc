// Codes with a scale and zero point for each position of a dimension, and encodings that are
// tensors. The arithmetic is that of quantize.cc.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

struct ChannelCodes {
  std::vector<float> scales;
  std::vector<double> zero_points;
  int64_t inner = 1;  // values of one channel in a row
  size_t channel(int64_t i) const { return static_cast<size_t>(i / inner % std::ssize(scales)); }
};

Result<ChannelCodes> channel_codes(const Tensor& self, const Tensor& scales,
                                   const Tensor* zero_points, int64_t axis) {
  const int dim = FERRY_TRY(wrap_dim(axis, self.rank()));
  if (self.rank() == 0) return bad_input(fmt::format("{} has no channels", describe(self)));
  FERRY_RETURN_IF_ERROR(require_sizes(scales, {self.size(dim)}));
  if (!is_floating(scales.dtype)) return bad_input(fmt::format("scales in {}", describe(scales)));
  ChannelCodes codes;
  codes.scales.resize(static_cast<size_t>(scales.numel));
  codes.zero_points.resize(codes.scales.size());
  load(scales.dtype, scales.data, codes.scales.data(), scales.numel);
  if (zero_points != nullptr) {
    FERRY_RETURN_IF_ERROR(require_sizes(*zero_points, {self.size(dim)}));
    load(zero_points->dtype, zero_points->data, codes.zero_points.data(), zero_points->numel);
  }
  for (int d = dim + 1; d < self.rank() && self.numel != 0; ++d) codes.inner *= self.size(d);
  return codes;
}

// Calls run with the encoding, which is in two tensors of one value, as numbers.
Status with_numbers(const Call& call, KernelFn run) {
  const Tensor &scale = tensor(call, 1), &zero_point = tensor(call, 2);
  if (scale.numel != 1 || zero_point.numel != 1) {
    return bad_input(
        fmt::format("{} and {} are no encoding", describe(scale), describe(zero_point)));
  }
  Value real{.kind = Value::Kind::kDouble}, integral{.kind = Value::Kind::kInt};
  real.real = load_number(scale.dtype, scale.data).real;
  integral.integer = load_number(zero_point.dtype, zero_point.data).integer;
  std::vector<Value*> args(call.args.begin(), call.args.end());
  args[1] = &real;
  args[2] = &integral;
  return run({args, call.variant, call.pool});
}

}  // namespace

Status quantize_by_tensors(const Call& call) { return with_numbers(call, quantize); }
Status dequantize_by_tensors(const Call& call) { return with_numbers(call, dequantize); }

Status quantize_channels(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 7);
  const ChannelCodes codes =
      FERRY_TRY(channel_codes(self, tensor(call, 1), &tensor(call, 2), integer(call, 3)));
  const auto low = static_cast<double>(integer(call, 4));
  const auto high = static_cast<double>(integer(call, 5));
  if (!is_floating(self.dtype) || !is_integral(out.dtype) || low > high) {
    return bad_input(fmt::format("{} cannot become {}", describe(self), describe(out)));
  }
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  for (int64_t i = 0; i < self.numel; ++i) {
    float value = 0;
    load(self.dtype, self.data + i * self.element_bytes(), &value, 1);
    const size_t c = codes.channel(i);
    const float scaled = std::nearbyint(value * (1.0F / codes.scales[c]));
    const double code =
        std::isnan(scaled)
            ? low
            : std::clamp(static_cast<double>(scaled) + codes.zero_points[c], low, high);
    store(out.dtype, &code, out.data + i * out.element_bytes(), 1);
  }
  return {};
}

Status dequantize_channels(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 8);
  const ChannelCodes codes =
      FERRY_TRY(channel_codes(self, tensor(call, 1), optional_tensor(call, 2), integer(call, 3)));
  if (!is_integral(self.dtype) || !is_floating(out.dtype)) {
    return bad_input(fmt::format("{} cannot become {}", describe(self), describe(out)));
  }
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  for (int64_t i = 0; i < self.numel; ++i) {
    double code = 0;
    load(self.dtype, self.data + i * self.element_bytes(), &code, 1);
    const size_t c = codes.channel(i);
    const float value = static_cast<float>(code - codes.zero_points[c]) * codes.scales[c];
    store(out.dtype, &value, out.data + i * out.element_bytes(), 1);
  }
  return {};
}

}  // namespace ferry::kernels
