// Normalisation of channels: batch_norm with statistics of training or of the batch, group_norm.
// Statistics are f64.
#include <cmath>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

// Values [outer, channels, inner], each channel with a scale and a shift for its values.
struct ChannelLayout {
  int64_t outer, channels, inner;
};

struct Affine {
  double center, factor;  // x -> (x - center) * factor
};

Result<ChannelLayout> channel_layout(const Tensor& input) {
  if (input.rank() < 2) return bad_input(fmt::format("{} has no channels", describe(input)));
  const int64_t outer = input.size(0), channels = input.size(1);
  return ChannelLayout{outer, channels, input.numel == 0 ? 0 : input.numel / (outer * channels)};
}

// Checks an optional tensor of a value for each channel.
Status require_channels(const Tensor* tensor, int64_t channels) {
  return tensor == nullptr ? Status() : require_sizes(*tensor, {channels});
}

std::vector<double> channel_values(const Tensor* tensor, int64_t channels, double otherwise) {
  std::vector<double> values(static_cast<size_t>(channels), otherwise);
  if (tensor != nullptr) load(tensor->dtype, tensor->data, values.data(), channels);
  return values;
}

// Computes out = ((x - center) * factor) * weight + bias. `affine` gives what belongs to a batch
// entry and channel.
template <class C, class F>
void apply_affine(const Call& call, const ChannelLayout& s, const Tensor& input,
                  const Tensor* weight, const Tensor* bias, const F& affine, Tensor& out) {
  const std::vector<double> scale = channel_values(weight, s.channels, 1);
  const std::vector<double> shift = channel_values(bias, s.channels, 0);
  const InputValues<C> from(input);
  OutputValues<C> to(out);
  for_pieces(call.pool, s.outer * s.channels,
             std::max<int64_t>(1, 16384 / std::max<int64_t>(1, s.inner)),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const auto c = static_cast<size_t>(i % s.channels);
                 const Affine a = affine(i / s.channels, i % s.channels);
                 const auto center = static_cast<C>(a.center);
                 const auto factor = static_cast<C>(a.factor * scale[c]);
                 const auto add = static_cast<C>(shift[c]);
                 for (int64_t j = i * s.inner; j < (i + 1) * s.inner; ++j) {
                   to[j] = (from[j] - center) * factor + add;
                 }
               }
             });
  to.finish();
}

struct Moments {
  double mean, variance;
};

// Calls value(i) for i in [0, count).
template <class F>
Moments moments_of(int64_t count, const F& value) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) sum += value(i);
  const double mean = sum / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) squares += (value(i) - mean) * (value(i) - mean);
  return {mean, squares / static_cast<double>(count)};
}

double inverse_deviation(double variance, double eps) { return 1 / std::sqrt(variance + eps); }

void store_values(const std::vector<double>& values, Tensor& out) {
  store(out.dtype, values.data(), out.data, std::ssize(values));
}

Status require_norm(const Tensor& input, const Tensor& out, double eps) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(input, out));
  if (!is_floating(input.dtype)) return bad_input(fmt::format("a norm of {}", describe(input)));
  if (eps >= 0) return {};
  return bad_input(fmt::format("an epsilon of {}", eps));
}

template <class F>
void for_floats(DType dtype, const F& f) {
  dispatch(compute_type(dtype), [&]<class C>(Tag<C> tag) {
    if constexpr (std::is_floating_point_v<C>) f(tag);
  });
}

}  // namespace

// The statistics that the program gives decide; it gets none back.
Status batch_norm(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor *weight = optional_tensor(call, 1), *bias = optional_tensor(call, 2);
  const Tensor &mean = tensor(call, 3), &variance = tensor(call, 4);
  Tensor& out = tensor(call, 7);
  const double eps = number(call, 6).real;
  FERRY_RETURN_IF_ERROR(require_norm(input, out, eps));
  const ChannelLayout s = FERRY_TRY(channel_layout(input));
  for (const Tensor* t : {weight, bias, &mean, &variance}) {
    FERRY_RETURN_IF_ERROR(require_channels(t, s.channels));
  }
  FERRY_RETURN_IF_ERROR(resize(out, input.sizes));
  FERRY_RETURN_IF_ERROR(resize(tensor(call, 8), {0}));
  FERRY_RETURN_IF_ERROR(resize(tensor(call, 9), {0}));
  const std::vector<double> centers = channel_values(&mean, s.channels, 0);
  std::vector<double> factors = channel_values(&variance, s.channels, 1);
  for (double& factor : factors) factor = inverse_deviation(factor, eps);
  for_floats(input.dtype, [&]<class C>(Tag<C>) {
    apply_affine<C>(
        call, s, input, weight, bias,
        [&](int64_t, int64_t c) {
          return Affine{centers[static_cast<size_t>(c)], factors[static_cast<size_t>(c)]};
        },
        out);
  });
  return {};
}

// The statistics are those of the batch.
Status batch_norm_no_stats(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor *weight = optional_tensor(call, 1), *bias = optional_tensor(call, 2);
  Tensor &out = tensor(call, 6), &mean = tensor(call, 7), &inverse = tensor(call, 8);
  const double eps = number(call, 5).real;
  FERRY_RETURN_IF_ERROR(require_norm(input, out, eps));
  if (!boolean(call, 3)) return bad_input("batch_norm without statistics");
  const ChannelLayout s = FERRY_TRY(channel_layout(input));
  FERRY_RETURN_IF_ERROR(require_channels(weight, s.channels));
  FERRY_RETURN_IF_ERROR(require_channels(bias, s.channels));
  FERRY_RETURN_IF_ERROR(resize(out, input.sizes));
  FERRY_RETURN_IF_ERROR(resize(mean, {s.channels}));
  FERRY_RETURN_IF_ERROR(resize(inverse, {s.channels}));
  std::vector<double> means(static_cast<size_t>(s.channels)), factors(means.size());
  for_floats(input.dtype, [&]<class C>(Tag<C>) {
    const InputValues<C> values(input);
    for (int64_t c = 0; c < s.channels; ++c) {
      const Moments m = moments_of(s.outer * s.inner, [&](int64_t i) {
        const int64_t at = (i / s.inner * s.channels + c) * s.inner + i % s.inner;
        return static_cast<double>(values[at]);
      });
      means[static_cast<size_t>(c)] = m.mean;
      factors[static_cast<size_t>(c)] = inverse_deviation(m.variance, eps);
    }
    apply_affine<C>(
        call, s, input, weight, bias,
        [&](int64_t, int64_t c) {
          return Affine{means[static_cast<size_t>(c)], factors[static_cast<size_t>(c)]};
        },
        out);
  });
  store_values(means, mean);
  store_values(factors, inverse);
  return {};
}

Status group_norm(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor *weight = optional_tensor(call, 1), *bias = optional_tensor(call, 2);
  const int64_t n = integer(call, 3), channels = integer(call, 4), inner = integer(call, 5);
  const int64_t groups = integer(call, 6);
  const double eps = number(call, 7).real;
  Tensor &out = tensor(call, 8), &mean = tensor(call, 9), &inverse = tensor(call, 10);
  FERRY_RETURN_IF_ERROR(require_norm(input, out, eps));
  const ChannelLayout s = FERRY_TRY(channel_layout(input));
  if (s.outer != n || s.channels != channels || (input.numel != 0 && s.inner != inner) ||
      groups < 1 || channels % groups != 0) {
    return bad_input(fmt::format("shape mismatch: {} groups of {} x {} x {} in {}", groups, n,
                                 channels, inner, describe(input)));
  }
  FERRY_RETURN_IF_ERROR(require_channels(weight, channels));
  FERRY_RETURN_IF_ERROR(require_channels(bias, channels));
  FERRY_RETURN_IF_ERROR(resize(out, input.sizes));
  FERRY_RETURN_IF_ERROR(resize(mean, {n, groups}));
  FERRY_RETURN_IF_ERROR(resize(inverse, {n, groups}));
  if (n == 0 || channels == 0) return {};
  const int64_t size = channels / groups * s.inner;
  std::vector<double> means(static_cast<size_t>(n * groups)), factors(means.size());
  for_floats(input.dtype, [&]<class C>(Tag<C>) {
    const InputValues<C> values(input);
    for_pieces(call.pool, n * groups, std::max<int64_t>(1, 16384 / std::max<int64_t>(size, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t g = begin; g < end; ++g) {
                   const C* row = values.data() + g * size;
                   const Moments m =
                       moments_of(size, [&](int64_t i) { return static_cast<double>(row[i]); });
                   means[static_cast<size_t>(g)] = m.mean;
                   factors[static_cast<size_t>(g)] = inverse_deviation(m.variance, eps);
                 }
               });
    apply_affine<C>(
        call, s, input, weight, bias,
        [&](int64_t b, int64_t c) {
          const auto g = static_cast<size_t>(b * groups + c / (channels / groups));
          return Affine{means[g], factors[g]};
        },
        out);
  });
  store_values(means, mean);
  store_values(factors, inverse);
  return {};
}

}  // namespace ferry::kernels
