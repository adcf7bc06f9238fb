// The nodes that work on images, [batch, height, width, channels], and PReLU.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/checked.h"
#include "kernels/elementwise.h"
#include "kernels/images.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "runner/delegate/node_rules.h"

namespace ferry::runner {
namespace {

using kernels::Call;
using kernels::Dims;
using kernels::Tensor;
using xnnpack::Node;
using xnnpack::NodeKind;

constexpr int64_t kMaxNumber = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxChannels = kMaxNumber;

// -- checks of the numbers

Status check_numbers(const Node& node, size_t count) {
  if (node.numbers.size() != count) {
    return bad_input(fmt::format("{} numbers, expected {}", node.numbers.size(), count));
  }
  for (const int64_t number : node.numbers) {
    if (number < 0 || number > kMaxNumber) return bad_input(fmt::format("the number {}", number));
  }
  return {};
}

Status check_positive(const Node& node, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) {
    if (node.numbers[i] < 1) return bad_input(fmt::format("the number {}", node.numbers[i]));
  }
  return {};
}

Status check_pooling(const Node& node) {
  FERRY_RETURN_IF_ERROR(check_numbers(node, xnnpack::kPoolingNumbers));
  const bool dilated = node.kind == NodeKind::kMaxPooling2d;
  return check_positive(node, xnnpack::kKernelY, dilated ? xnnpack::kDilationX : xnnpack::kStrideX);
}

Status check_convolution(const Node& node) {
  FERRY_RETURN_IF_ERROR(check_numbers(node, xnnpack::kConvolutionNumbers));
  FERRY_RETURN_IF_ERROR(check_positive(node, xnnpack::kKernelY, xnnpack::kGroups));
  const std::vector<int64_t>& n = node.numbers;
  if (std::max(n[xnnpack::kGroupInputs], n[xnnpack::kGroupOutputs]) <=
      kMaxChannels / n[xnnpack::kGroups]) {
    return {};
  }
  return bad_input("too many channels");
}

Status check_size(const Node& node) {
  FERRY_RETURN_IF_ERROR(check_numbers(node, 2));
  return check_positive(node, 0, 1);
}

Status check_padding(const Node& node) {
  if (node.numbers.size() > 2 * kMaxNodeRank || node.numbers.size() % 2 != 0 ||
      node.factors.size() != 1) {
    return bad_input("the numbers of its padding");
  }
  return check_numbers(node, node.numbers.size());
}

// -- shapes

Result<Dims> image_of(const Dims& input) {
  if (input.rank() == 4) return input;
  return bad_input(fmt::format("[{}] is no image", fmt::join(input.span(), ", ")));
}

Result<Dims> windowed(const Node& node, const Dims& input, int64_t channels) {
  const auto y = xnnpack::window_output(node, false, input[1]);
  const auto x = xnnpack::window_output(node, true, input[2]);
  if (y && x) return Dims{input[0], *y, *x, channels};
  return bad_input(fmt::format("its window does not fit [{}]", fmt::join(input.span(), ", ")));
}

Result<Dims> convolved(const Node& node, std::span<const Dims* const> inputs) {
  const Dims image = FERRY_TRY(image_of(*inputs[0]));
  const std::vector<int64_t>& n = node.numbers;
  const int64_t outputs = n[xnnpack::kGroups] * n[xnnpack::kGroupOutputs];
  const bool depthwise = node.kind == NodeKind::kDepthwiseConv2d;
  const Dims filter = {depthwise ? 1 : outputs, n[xnnpack::kKernelY], n[xnnpack::kKernelX],
                       depthwise ? outputs : n[xnnpack::kGroupInputs]};
  const bool fits = image[3] == n[xnnpack::kGroups] * n[xnnpack::kGroupInputs] &&
                    (!depthwise || n[xnnpack::kGroupInputs] == 1) && *inputs[1] == filter &&
                    (inputs.size() < 3 || *inputs[2] == Dims{outputs});
  if (fits) return windowed(node, image, outputs);
  return bad_input(fmt::format("shape mismatch: [{}] and [{}]", fmt::join(image.span(), ", "),
                               fmt::join(inputs[1]->span(), ", ")));
}

Result<Dims> padded(const Node& node, const Dims& input) {
  Dims out = input;
  const size_t rank = node.numbers.size() / 2;
  if (rank != static_cast<size_t>(input.rank())) {
    return bad_input(fmt::format("{} paddings for [{}]", rank, fmt::join(input.span(), ", ")));
  }
  for (size_t i = 0; i < rank; ++i) {
    const auto size =
        checked_add(input[static_cast<int>(i)], node.numbers[i] + node.numbers[rank + i]);
    if (!size) return bad_input("its size overflows");
    out[static_cast<int>(i)] = *size;
  }
  return out;
}

// -- arguments

void add_numbers(const Node& node, KernelArgs& args) { args.integers(node.numbers); }

// As constant_pad_nd has them: last dimension first.
void add_padding(const Node& node, KernelArgs& args) {
  std::vector<int64_t> widths;
  const size_t rank = node.numbers.size() / 2;
  for (size_t i = rank; i-- > 0;) {
    widths.push_back(node.numbers[i]);
    widths.push_back(node.numbers[rank + i]);
  }
  args.integers(widths);
  args.real(node.factors[0]);
}

void add_corners(const Node& node, KernelArgs& args) {
  args.boolean((node.flags & xnnpack::kAlignCorners) != 0);
}

// -- kernels

int64_t number_of(const Call& call, size_t argument, size_t i) {
  return kernels::list(call, argument)[i]->integer;
}

kernels::Window window_of(const Call& call, size_t argument, const Tensor& input, const Tensor& out,
                          bool along_x) {
  const auto number = [&](size_t of_y) {
    return number_of(call, argument, of_y + (along_x ? 1 : 0));
  };
  const int dim = along_x ? 2 : 1;
  return {.in = input.size(dim),
          .out = out.size(dim),
          .kernel = number(xnnpack::kKernelY),
          .stride = number(xnnpack::kStrideY),
          .dilation = number(xnnpack::kDilationY),
          .before = number_of(call, argument, along_x ? xnnpack::kPadLeft : xnnpack::kPadTop)};
}

kernels::Windows windows_of(const Call& call, size_t argument, const Tensor& input,
                            const Tensor& out) {
  return {input.size(0), window_of(call, argument, input, out, false),
          window_of(call, argument, input, out, true)};
}

// The shapes of tensors have been made by result_shape(), so that outs have their sizes.
// image, filter, bias?, numbers -> out; variant is 1 for a transposed convolution
Status convolve(const Call& call) {
  const Tensor &image = kernels::tensor(call, 0), &filter = kernels::tensor(call, 1);
  const Tensor* bias = kernels::optional_tensor(call, 2);
  Tensor& out = kernels::tensor(call, 4);
  const kernels::ChannelGroups channels = {number_of(call, 3, xnnpack::kGroups),
                                           number_of(call, 3, xnnpack::kGroupInputs),
                                           number_of(call, 3, xnnpack::kGroupOutputs)};
  if (out.numel == 0) return {};
  kernels::convolve_image(windows_of(call, 3, image, out), channels, call.variant == 1,
                          image.as<float>(), filter.as<float>(),
                          bias == nullptr ? nullptr : bias->as<float>(), out.as<float>(),
                          call.pool);
  return {};
}

Status convolve_depthwise(const Call& call) {
  const Tensor &image = kernels::tensor(call, 0), &filter = kernels::tensor(call, 1);
  const Tensor* bias = kernels::optional_tensor(call, 2);
  Tensor& out = kernels::tensor(call, 4);
  kernels::convolve_channels(windows_of(call, 3, image, out), image.size(3),
                             number_of(call, 3, xnnpack::kGroupOutputs), image.as<float>(),
                             filter.as<float>(), bias == nullptr ? nullptr : bias->as<float>(),
                             out.as<float>(), call.pool);
  return {};
}

// image, numbers -> out; variant is 1 for averages
Status pool(const Call& call) {
  const Tensor& image = kernels::tensor(call, 0);
  Tensor& out = kernels::tensor(call, 2);
  kernels::Windows windows = windows_of(call, 1, image, out);
  if (call.variant == 1) windows.y.dilation = windows.x.dilation = 1;  // as in window_output()
  const auto run = call.variant == 1 ? kernels::average_pool_image : kernels::max_pool_image;
  run(windows, image.size(3), image.as<float>(), out.as<float>(), call.pool);
  return {};
}

Status pool_all(const Call& call) {
  const Tensor& image = kernels::tensor(call, 0);
  Tensor& out = kernels::tensor(call, 1);
  kernels::Windows windows;
  windows.batch = image.size(0);
  windows.y.in = windows.y.kernel = image.size(1);
  windows.x.in = windows.x.kernel = image.size(2);
  kernels::average_pool_image(windows, image.size(3), image.as<float>(), out.as<float>(),
                              call.pool);
  return {};
}

// image, align_corners -> out
Status resize_bilinear(const Call& call) {
  const Tensor& image = kernels::tensor(call, 0);
  Tensor& out = kernels::tensor(call, 2);
  kernels::Windows windows;
  windows.batch = image.size(0);
  windows.y = {.in = image.size(1), .out = out.size(1)};
  windows.x = {.in = image.size(2), .out = out.size(2)};
  if (out.numel == 0) return {};
  kernels::resize_image(windows, image.size(3), kernels::boolean(call, 1), image.as<float>(),
                        out.as<float>(), call.pool);
  return {};
}

void slope_row(const kernels::RowInput* in, void* out, int64_t n, const kernels::RowParams&) {
  const float* x = static_cast<const float*>(in[0].values);
  const float* slope = static_cast<const float*>(in[1].values);
  for (int64_t i = 0; i < n; ++i) {
    const float value = x[in[0].many ? i : 0];
    static_cast<float*>(out)[i] = value < 0 ? value * slope[in[1].many ? i : 0] : value;
  }
}

// self, slopes -> out
Status prelu(const Call& call) {
  const kernels::Operand operands[] = {kernels::Operand(kernels::tensor(call, 0)),
                                       kernels::Operand(kernels::tensor(call, 1))};
  return kernels::elementwise(call, operands, kernels::tensor(call, 2), kernels::Compute::kF32,
                              kernels::RowResult::kSame, slope_row);
}

constexpr NodeRule kImageRules[] = {
    {NodeKind::kConv2d, 3, convolve, 0, add_numbers, check_convolution, 1},
    {NodeKind::kConvTranspose2d, 3, convolve, 1, add_numbers, check_convolution, 1},
    {NodeKind::kDepthwiseConv2d, 3, convolve_depthwise, 0, add_numbers, check_convolution, 1},
    {NodeKind::kMaxPooling2d, 1, pool, 0, add_numbers, check_pooling},
    {NodeKind::kAvgPooling2d, 1, pool, 1, add_numbers, check_pooling},
    {NodeKind::kGlobalAvgPooling2d, 1, pool_all},
    {NodeKind::kStaticResizeBilinear2d, 1, resize_bilinear, 0, add_corners, check_size},
    {NodeKind::kStaticConstantPad, 1, kernels::constant_pad, 0, add_padding, check_padding},
    {NodeKind::kPrelu, 2, prelu},
};

}  // namespace

std::span<const NodeRule> image_rules() { return kImageRules; }

Result<Dims> image_shape(const Node& node, std::span<const Dims* const> inputs) {
  switch (node.kind) {
    case NodeKind::kStaticConstantPad:
      return padded(node, *inputs[0]);
    case NodeKind::kPrelu: {
      const Dims wide = FERRY_TRY(kernels::broadcast(*inputs[0], *inputs[1]));
      if (wide == *inputs[0]) return wide;
      return bad_input("more slopes than values");
    }
    case NodeKind::kGlobalAvgPooling2d: {
      const Dims image = FERRY_TRY(image_of(*inputs[0]));
      if ((node.flags & xnnpack::kKeepDims) == 0) return Dims{image[0], image[3]};
      return Dims{image[0], 1, 1, image[3]};
    }
    case NodeKind::kStaticResizeBilinear2d: {
      const Dims image = FERRY_TRY(image_of(*inputs[0]));
      if (image[1] == 0 || image[2] == 0) return bad_input("an image without pixels");
      return Dims{image[0], node.numbers[0], node.numbers[1], image[3]};
    }
    case NodeKind::kAvgPooling2d:
    case NodeKind::kMaxPooling2d:
      return windowed(node, FERRY_TRY(image_of(*inputs[0])), (*inputs[0])[3]);
    default:
      return convolved(node, inputs);
  }
}

}  // namespace ferry::runner
