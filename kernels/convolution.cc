// aten::convolution with one or two dimensions and groups, not transposed. The causal depthwise
// convolution of Gated DeltaNet has its own kernel; the rest is a linear layer over unfolded
// patches. So a 1x1 convolution over one position equals a linear layer to the bit, and weights are
// read once for any number of positions.
#include "kernels/compute.h"
#include "kernels/compute_f64.h"
#include "kernels/compute_scratch.h"
#include "kernels/elementwise.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kMaxUnfolded = int64_t{1} << 30;  // limit of the bytes of patches

// One spatial dimension. The only dimension of a 1-D convolution is stored as the second of two.
struct Axis {
  int64_t in = 1, kernel = 1, out = 1;
  int64_t stride = 1, padding = 0, dilation = 1;
};

struct ConvolutionShape {
  int64_t batch, in_channels, out_channels, groups;
  Axis y, x;
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

Result<Axis> axis_of(const Call& call, const Tensor& input, const Tensor& weight, int i) {
  Axis axis;
  axis.in = input.size(2 + i);
  axis.kernel = weight.size(2 + i);
  axis.stride = FERRY_TRY(list_value(call, 3, i, 1));
  axis.padding = FERRY_TRY(list_value(call, 4, i, 0));
  axis.dilation = FERRY_TRY(list_value(call, 5, i, 1));
  const int64_t span = axis.in + 2 * axis.padding - axis.dilation * (axis.kernel - 1) - 1;
  if (axis.kernel < 1 || span < 0) {
    return bad_input(fmt::format("kernel {} is larger than {}", describe(weight), describe(input)));
  }
  axis.out = span / axis.stride + 1;
  return axis;
}

Result<ConvolutionShape> shape_of(const Call& call, const Tensor& input, const Tensor& weight) {
  const int spatial = weight.rank() - 2;
  if (spatial != 1 && spatial != 2) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("convolution with weight {}", describe(weight)));
  }
  FERRY_RETURN_IF_ERROR(require_rank(input, weight.rank()));
  ConvolutionShape shape{input.size(0), input.size(1), weight.size(0), integer(call, 8), {}, {}};
  if (shape.groups < 1 || shape.in_channels % shape.groups != 0 ||
      shape.out_channels % shape.groups != 0 || shape.group_in() != weight.size(1)) {
    return bad_input(fmt::format("shape mismatch: {} groups, weight {}, input {}", shape.groups,
                                 describe(weight), describe(input)));
  }
  if (spatial == 2) shape.y = FERRY_TRY(axis_of(call, input, weight, 0));
  shape.x = FERRY_TRY(axis_of(call, input, weight, spatial - 1));
  return shape;
}

bool is_depthwise(const ConvolutionShape& s, const Tensor& weight) {
  return weight.rank() == 3 && weight.dtype == DType::kF32 && s.groups == s.in_channels &&
         s.out_channels == s.in_channels && s.x.stride == 1 && s.x.padding == 0 &&
         s.x.dilation == 1;
}

// Copies the patches of one group of one image: [positions, group_in * kernel_y * kernel_x].
template <class T>
void unfold(const ConvolutionShape& s, const T* image, T* patches) {
  for (int64_t oy = 0; oy < s.y.out; ++oy) {
    for (int64_t ox = 0; ox < s.x.out; ++ox) {
      for (int64_t c = 0; c < s.group_in(); ++c) {
        for (int64_t ky = 0; ky < s.y.kernel; ++ky) {
          const int64_t iy = oy * s.y.stride - s.y.padding + ky * s.y.dilation;
          for (int64_t kx = 0; kx < s.x.kernel; ++kx) {
            const int64_t ix = ox * s.x.stride - s.x.padding + kx * s.x.dilation;
            const bool inside = iy >= 0 && iy < s.y.in && ix >= 0 && ix < s.x.in;
            *patches++ = inside ? image[(c * s.y.in + iy) * s.x.in + ix] : T{};
          }
        }
      }
    }
  }
}

bool is_plain(const Axis& axis) {
  return axis.kernel == 1 && axis.stride == 1 && axis.padding == 0;
}

// Returns whether every position is a patch. The patches are then the transposed image.
bool is_pointwise(const ConvolutionShape& s) { return is_plain(s.y) && is_plain(s.x); }

// Computes to[columns, rows] = from[rows, columns].
void transposed(const Call& call, const std::byte* from, std::byte* to, int64_t rows,
                int64_t columns, int64_t bytes) {
  strided_copy(call.pool, {columns, rows}, bytes, {from, {1, columns}}, {to, {rows, 1}});
}

// Returns the patches of one group of one image. They are copied into `memory` unless the image
// already has their layout.
const std::byte* patches_of(const Call& call, const ConvolutionShape& s, const std::byte* image,
                            std::byte* memory, int64_t bytes) {
  if (is_pointwise(s)) {
    if (s.positions() == 1) return image;
    transposed(call, image, memory, s.group_in(), s.positions(), bytes);
  } else if (bytes == 8) {
    unfold(s, reinterpret_cast<const uint64_t*>(image), reinterpret_cast<uint64_t*>(memory));
  } else if (bytes == 4) {
    unfold(s, reinterpret_cast<const uint32_t*>(image), reinterpret_cast<uint32_t*>(memory));
  } else {
    unfold(s, reinterpret_cast<const uint16_t*>(image), reinterpret_cast<uint16_t*>(memory));
  }
  return memory;
}

size_t floats_of(int64_t elements, int64_t bytes) {
  return static_cast<size_t>((elements * bytes + 3) / 4);
}

Status by_patches(const Call& call, const ConvolutionShape& s, const Tensor& input,
                  const Tensor& weight, Tensor& out) {
  const int64_t bytes = out.element_bytes();
  const std::optional<int64_t> count = checked_mul(s.positions(), s.patch());
  if (!count || *count > kMaxUnfolded / bytes) {
    return fail(ErrorCode::kUnsupported, "a convolution of that size");
  }
  const bool many = s.positions() > 1;
  const Scratch patches(many || !is_pointwise(s) ? floats_of(*count, bytes) : 0);
  const Scratch products(many ? floats_of(s.group_out() * s.positions(), bytes) : 0);
  const int64_t image = s.group_in() * s.y.in * s.x.in * bytes;
  const int64_t result = s.group_out() * s.positions() * bytes;
  const int64_t kernel = s.group_out() * s.patch() * bytes;
  for (int64_t i = 0; i < s.batch * s.groups; ++i) {
    const std::byte* rows = patches_of(call, s, input.data + i * image,
                                       reinterpret_cast<std::byte*>(patches.data()), bytes);
    std::byte* to = out.data + i * result;
    std::byte* product = many ? reinterpret_cast<std::byte*>(products.data()) : to;
    const std::byte* filters = weight.data + i % s.groups * kernel;
    if (out.dtype == DType::kF64) {
      kernels::linear_f64(reinterpret_cast<const double*>(rows), DType::kF64, filters,
                          reinterpret_cast<double*>(product), s.positions(), s.group_out(),
                          s.patch(), call.pool);
    } else {
      kernels::linear(out.dtype, rows, filters, product, s.positions(), s.group_out(), s.patch(),
                      call.pool);
    }
    if (many) transposed(call, product, to, s.positions(), s.group_out(), bytes);
  }
  return {};
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
  if (boolean(call, 6)) return fail(ErrorCode::kUnsupported, "a transposed convolution");
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
  } else if (is_depthwise(s, weight)) {
    for (int64_t b = 0; b < s.batch; ++b) {
      kernels::depthwise_conv1d_f32(input.as<float>() + b * s.in_channels * s.x.in,
                                    weight.as<float>(),
                                    bias == nullptr ? nullptr : bias->as<float>(),
                                    out.as<float>() + b * s.out_channels * s.x.out, s.in_channels,
                                    s.x.in, s.x.kernel, call.pool);
    }
    return {};
  } else {
    FERRY_RETURN_IF_ERROR(by_patches(call, s, input, weight, out));
  }
  return bias == nullptr ? Status() : add_channel_bias(call, *bias, out);
}

}  // namespace ferry::kernels
