// Convolution over one or two spatial dimensions, also transposed. The causal depthwise convolution
// of Gated DeltaNet has its own kernel, depthwise convolutions in f32 a loop of their own; the rest
// is a linear layer over unfolded patches, some positions at a time. So a 1x1 convolution over one
// position equals a linear layer to the bit, and weights are read once for many positions.
#include "kernels/compute.h"
#include "kernels/compute_f64.h"
#include "kernels/compute_scratch.h"
#include "kernels/elementwise.h"
#include "kernels/images.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

struct ConvolutionShape {
  int64_t batch, in_channels, out_channels, groups;
  bool transposed;
  // The only dimension of a 1-D convolution is x.
  Window y, x;
  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t positions() const { return y.out * x.out; }
  int64_t patch() const { return group_in() * y.kernel * x.kernel; }
};

// The last value of a list stands for the dimensions that the list leaves out, as in torch.
Result<int64_t> list_value(const Call& call, size_t argument, int64_t i, int64_t least) {
  const Dims values = FERRY_TRY(int_list(call, argument));
  if (values.empty()) return bad_input("an empty list of strides, paddings or dilations");
  const int64_t value = values[static_cast<int>(std::min<int64_t>(i, values.rank() - 1))];
  if (value < least || value > INT32_MAX) {
    return bad_input(fmt::format("a stride, padding or dilation of {}", value));
  }
  return value;
}

Result<Window> window_of(const Call& call, const Tensor& input, const Tensor& weight, int i) {
  Window w;
  w.in = input.size(2 + i);
  w.kernel = weight.size(2 + i);
  w.stride = FERRY_TRY(list_value(call, 3, i, 1));
  w.before = FERRY_TRY(list_value(call, 4, i, 0));
  w.dilation = FERRY_TRY(list_value(call, 5, i, 1));
  const auto too_large = [&] {
    return bad_input(fmt::format("kernel {} is larger than {}", describe(weight), describe(input)));
  };
  // The factors are below 2^31 each, as those of existing tensors are below 2^62 together.
  if (w.kernel < 1 || w.kernel > INT32_MAX || w.in > INT32_MAX) return too_large();
  const int64_t reach = w.dilation * (w.kernel - 1) + 1;
  if (boolean(call, 6)) {
    const int64_t more = list(call, 7).empty() ? 0 : FERRY_TRY(list_value(call, 7, i, 0));
    if (more >= std::max(w.stride, w.dilation)) {
      return bad_input(fmt::format("an output padding of {}", more));
    }
    w.out = (w.in - 1) * w.stride - 2 * w.before + reach + more;
    if (w.in < 1 || w.out < 1) return too_large();
    return w;
  }
  const int64_t span = w.in + 2 * w.before - reach;
  if (span < 0) return too_large();
  w.out = span / w.stride + 1;
  return w;
}

Result<ConvolutionShape> shape_of(const Call& call, const Tensor& input, const Tensor& weight) {
  const int spatial = weight.rank() - 2;
  if (spatial != 1 && spatial != 2) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("convolution with weight {}", describe(weight)));
  }
  FERRY_RETURN_IF_ERROR(require_rank(input, weight.rank()));
  ConvolutionShape shape{
      input.size(0), input.size(1), weight.size(0), integer(call, 8), boolean(call, 6), {}, {}};
  bool fits = shape.groups >= 1 && shape.in_channels % shape.groups == 0;
  if (fits && shape.transposed) {  // weight [in_channels, group_out, ...]
    fits = weight.size(0) == shape.in_channels;
    const auto outputs = checked_mul(weight.size(1), shape.groups);
    fits = fits && outputs && *outputs <= INT32_MAX;
    if (fits) shape.out_channels = *outputs;
  } else if (fits) {
    fits = shape.out_channels % shape.groups == 0 && shape.group_in() == weight.size(1);
  }
  if (!fits) {
    return bad_input(fmt::format("shape mismatch: {} groups, weight {}, input {}", shape.groups,
                                 describe(weight), describe(input)));
  }
  if (spatial == 2) shape.y = FERRY_TRY(window_of(call, input, weight, 0));
  shape.x = FERRY_TRY(window_of(call, input, weight, spatial - 1));
  return shape;
}

// The depthwise convolution of Gated DeltaNet.
bool is_causal_depthwise(const ConvolutionShape& s, const Tensor& weight) {
  return weight.rank() == 3 && weight.dtype == DType::kF32 && s.groups == s.in_channels &&
         s.out_channels == s.in_channels && s.x.stride == 1 && s.x.before == 0 &&
         s.x.dilation == 1 && !s.transposed;
}

bool inside_of(int64_t at, int64_t size) { return at >= 0 && at < size; }

// Copies the patch of one position of one group: [group_in, kernel_y, kernel_x].
template <class T>
void copy_patch(const ConvolutionShape& s, const T* image, int64_t position, T* to) {
  const int64_t oy = position / s.x.out, ox = position % s.x.out;
  for (int64_t c = 0; c < s.group_in(); ++c) {
    for (int64_t ky = 0; ky < s.y.kernel; ++ky) {
      const int64_t iy = s.transposed ? s.y.source(oy, ky) : s.y.position(oy, ky);
      for (int64_t kx = 0; kx < s.x.kernel; ++kx) {
        const int64_t ix = s.transposed ? s.x.source(ox, kx) : s.x.position(ox, kx);
        const bool is_inside = inside_of(iy, s.y.in) && inside_of(ix, s.x.in);
        *to++ = is_inside ? image[(c * s.y.in + iy) * s.x.in + ix] : T{};
      }
    }
  }
}

template <class T>
void copy_patches(const Call& call, const ConvolutionShape& s, const std::byte* image,
                  std::byte* memory, int64_t first, int64_t count) {
  const int64_t piece = std::max<int64_t>(1, 8192 / s.patch());
  for_pieces(call.pool, count, piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      copy_patch(s, reinterpret_cast<const T*>(image), first + i,
                 reinterpret_cast<T*>(memory) + i * s.patch());
    }
  });
}

bool is_plain(const Window& w) { return w.kernel == 1 && w.stride == 1 && w.before == 0; }

// Returns whether every position is a patch. The patches are then the transposed image.
bool is_pointwise(const ConvolutionShape& s) {
  return is_plain(s.y) && is_plain(s.x) && s.x.in == s.x.out && s.y.in == s.y.out;
}

// Returns the patches of `count` positions of one group of one image, from `first` on. They are
// copied into `memory` unless the image already has their layout.
const std::byte* patches_of(const Call& call, const ConvolutionShape& s, const std::byte* image,
                            std::byte* memory, int64_t bytes, int64_t first, int64_t count) {
  if (is_pointwise(s)) {
    if (s.positions() == 1) return image;
    strided_copy(call.pool, {count, s.group_in()}, bytes,
                 {image + first * bytes, {1, s.positions()}}, {memory, {s.group_in(), 1}});
  } else if (bytes == 8) {
    copy_patches<uint64_t>(call, s, image, memory, first, count);
  } else if (bytes == 4) {
    copy_patches<uint32_t>(call, s, image, memory, first, count);
  } else {
    copy_patches<uint16_t>(call, s, image, memory, first, count);
  }
  return memory;
}

size_t floats_of(int64_t elements, int64_t bytes) {
  return static_cast<size_t>((elements * bytes + 3) / 4);
}

// The filters of one group, [group_out, group_in, kernel_y, kernel_x]. Those of a transposed
// convolution are [group_in, group_out, ...] in the program, and are copied into `memory`.
const std::byte* filters_of(const Call& call, const ConvolutionShape& s, const Tensor& weight,
                            int64_t group, std::byte* memory) {
  const int64_t taps = s.y.kernel * s.x.kernel, bytes = weight.element_bytes();
  const std::byte* from = weight.data + group * s.group_out() * s.patch() * bytes;
  if (!s.transposed) return from;
  strided_copy(call.pool, {s.group_out(), s.group_in(), taps}, bytes,
               {from, {taps, s.group_out() * taps, 1}}, {memory, {s.patch(), taps, 1}});
  return memory;
}

Status by_patches(const Call& call, const ConvolutionShape& s, const Tensor& input,
                  const Tensor& weight, Tensor& out) {
  const int64_t bytes = out.element_bytes();
  const int64_t tile = tile_positions(s.positions(), s.patch());
  const bool many = s.positions() > 1;
  const Scratch patches(many || !is_pointwise(s) ? floats_of(tile * s.patch(), bytes) : 0);
  const Scratch products(many ? floats_of(s.group_out() * tile, bytes) : 0);
  const Scratch filters(s.transposed ? floats_of(s.group_out() * s.patch(), bytes) : 0);
  const int64_t image = s.group_in() * s.y.in * s.x.in * bytes;
  const int64_t result = s.group_out() * s.positions() * bytes;
  const auto memory = [](const Scratch& scratch) {
    return reinterpret_cast<std::byte*>(scratch.data());
  };
  for (int64_t i = 0; i < s.batch * s.groups; ++i) {
    const std::byte* w = filters_of(call, s, weight, i % s.groups, memory(filters));
    std::byte* to = out.data + i * result;
    std::byte* product = many ? memory(products) : to;
    for (int64_t first = 0; first < s.positions(); first += tile) {
      const int64_t count = std::min(tile, s.positions() - first);
      const std::byte* rows =
          patches_of(call, s, input.data + i * image, memory(patches), bytes, first, count);
      if (out.dtype == DType::kF64) {
        kernels::linear_f64(reinterpret_cast<const double*>(rows), DType::kF64, w,
                            reinterpret_cast<double*>(product), count, s.group_out(), s.patch(),
                            call.pool);
      } else {
        kernels::linear(out.dtype, rows, w, product, count, s.group_out(), s.patch(), call.pool);
      }
      if (!many) continue;
      strided_copy(call.pool, {s.group_out(), count}, bytes, {product, {1, s.group_out()}},
                   {to + first * bytes, {s.positions(), 1}});
    }
  }
  return {};
}

// Adds row[i * stride] * w to n values.
void add_row(const float* row, int64_t stride, float w, float* to, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] += row[i] * w;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] += row[i * stride] * w;
  }
}

// Every output channel has one input channel.
void by_channels(const Call& call, const ConvolutionShape& s, const Tensor& input,
                 const Tensor& weight, Tensor& out) {
  for_pieces(call.pool, s.batch * s.out_channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i % s.out_channels;
      const float* image =
          input.as<float>() +
          (i / s.out_channels * s.in_channels + channel / s.group_out()) * s.y.in * s.x.in;
      const float* w = weight.as<float>() + channel * s.y.kernel * s.x.kernel;
      for (int64_t oy = 0; oy < s.y.out; ++oy) {
        float* to = out.as<float>() + (i * s.y.out + oy) * s.x.out;
        std::fill_n(to, s.x.out, 0.0F);
        const Window::Range rows = s.y.inside(oy);
        for (int64_t tap = rows.begin * s.x.kernel; tap < rows.end * s.x.kernel; ++tap) {
          const int64_t iy = s.y.position(oy, tap / s.x.kernel), kx = tap % s.x.kernel;
          // The outputs whose input lies inside of the row.
          const int64_t before = s.x.before - kx * s.x.dilation;
          const int64_t first = std::clamp<int64_t>(
              before > 0 ? (before + s.x.stride - 1) / s.x.stride : 0, 0, s.x.out);
          const int64_t last = s.x.in - 1 + before;
          const int64_t stop =
              last < 0 ? first : std::clamp<int64_t>(last / s.x.stride + 1, first, s.x.out);
          add_row(image + iy * s.x.in + s.x.position(first, kx), s.x.stride, w[tap], to + first,
                  stop - first);
        }
      }
    }
  });
}

Status add_channel_bias(const Call& call, const Tensor& bias, Tensor& out) {
  Operand channels(bias);  // [C] as [C,1] or [C,1,1]
  for (int dim = 2; dim < out.rank(); ++dim) channels.sizes.push_back(1);
  return add_scaled(call, Operand(out), channels, Number::of_int(1), out.dtype, out);
}

}  // namespace

Status convolution(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor& weight = tensor(call, 1);
  const Tensor* bias = optional_tensor(call, 2);
  Tensor& out = tensor(call, 9);
  for (const Tensor* t : {&weight, static_cast<const Tensor*>(&out)}) {
    FERRY_RETURN_IF_ERROR(require_same_dtype(input, *t));
  }
  if (!is_floating(input.dtype)) {
    return fail(ErrorCode::kUnsupported, fmt::format("convolution of {}", describe(input)));
  }
  const ConvolutionShape s = FERRY_TRY(shape_of(call, input, weight));
  if (bias != nullptr) {
    FERRY_RETURN_IF_ERROR(require_same_dtype(input, *bias));
    FERRY_RETURN_IF_ERROR(require_sizes(*bias, {s.out_channels}));
  }
  FERRY_RETURN_IF_ERROR(resize(out, weight.rank() == 3
                                        ? Dims{s.batch, s.out_channels, s.x.out}
                                        : Dims{s.batch, s.out_channels, s.y.out, s.x.out}));
  if (out.numel == 0) return {};
  if (s.patch() == 0) {
    fill(out, Number::of_int(0));
  } else if (is_causal_depthwise(s, weight)) {
    for (int64_t b = 0; b < s.batch; ++b) {
      kernels::depthwise_conv1d_f32(input.as<float>() + b * s.in_channels * s.x.in,
                                    weight.as<float>(),
                                    bias == nullptr ? nullptr : bias->as<float>(),
                                    out.as<float>() + b * s.out_channels * s.x.out, s.in_channels,
                                    s.x.in, s.x.kernel, call.pool);
    }
    return {};
  } else if (s.group_in() == 1 && s.groups > 1 && !s.transposed && out.dtype == DType::kF32) {
    by_channels(call, s, input, weight, out);
  } else {
    FERRY_RETURN_IF_ERROR(by_patches(call, s, input, weight, out));
  }
  return bias == nullptr ? Status() : add_channel_bias(call, *bias, out);
}

}  // namespace ferry::kernels
