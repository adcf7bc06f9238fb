// Checks nodes of convolutions, pooling and resizing. An image is [batch, height, width, channels].

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "formats/xnnpack/node_rules.h"

namespace ferry::xnnpack {

Status NodeCheck::expect_image(const Value& value) const {
  if (value.dims.size() == 4) return {};
  return error(fmt::format("an image of rank {}", value.dims.size()));
}

// Returns the shape of the output of a window of checked numbers, with `channels`.
Result<Dims> NodeCheck::windowed(uint64_t channels) const {
  const Dims& from = input(0).dims;
  const auto y = window_output(node(), false, from[1]), x = window_output(node(), true, from[2]);
  if (!y || !x || *y > UINT32_MAX || *x > UINT32_MAX || channels > UINT32_MAX) {
    return error(fmt::format("its window does not fit [{}]", fmt::join(from, ", ")));
  }
  return Dims{from[0], static_cast<uint32_t>(*y), static_cast<uint32_t>(*x),
              static_cast<uint32_t>(channels)};
}

Status NodeCheck::check_window(size_t count) const {
  FERRY_RETURN_IF_ERROR(expect_image(input(0)));
  FERRY_RETURN_IF_ERROR(expect_numbers(count));
  for (size_t i = 0; i < count; ++i) {
    const bool may_be_0 = i <= kPadLeft || i >= kAdjustY ||
                          (node().kind == NodeKind::kAvgPooling2d && i >= kDilationY);
    if (node().numbers[i] < (may_be_0 ? 0 : 1) || node().numbers[i] > INT32_MAX) {
      return error(fmt::format("number {} is {}", i, node().numbers[i]));
    }
  }
  return {};
}

Status NodeCheck::check_convolution() const {
  FERRY_RETURN_IF_ERROR(check_window(kConvolutionNumbers));
  const std::vector<int64_t>& n = node().numbers;
  const bool transposed = node().kind == NodeKind::kConvTranspose2d;
  if (!transposed && (n[kAdjustY] != 0 || n[kAdjustX] != 0)) {
    return unsupported("an adjustment of its output");
  }
  const Value& filter = input(1);
  if (filter.constant == 0) return unsupported("a filter that is no constant");
  if (!is_supported_convolution(input(0).datatype, filter.datatype, output().datatype)) {
    return unsupported(fmt::format("{} by {} into {}", datatype_name(input(0).datatype),
                                   datatype_name(filter.datatype),
                                   datatype_name(output().datatype)));
  }
  const int64_t inputs = n[kGroups] * n[kGroupInputs], outputs = n[kGroups] * n[kGroupOutputs];
  const bool depthwise = node().kind == NodeKind::kDepthwiseConv2d;
  const std::vector<int64_t> dims = {depthwise ? 1 : outputs, n[kKernelY], n[kKernelX],
                                     depthwise ? outputs : n[kGroupInputs]};
  if (!std::ranges::equal(filter.dims, dims) || input(0).dims[3] != inputs ||
      (depthwise && n[kGroupInputs] != 1)) {
    return error(fmt::format("[{}] by a filter of [{}]", fmt::join(input(0).dims, ", "),
                             fmt::join(filter.dims, ", ")));
  }
  FERRY_RETURN_IF_ERROR(check_bias(static_cast<uint64_t>(outputs)));
  return expect_output(FERRY_TRY(windowed(static_cast<uint64_t>(outputs))));
}

bool NodeCheck::is_supported_convolution(Datatype image, Datatype filter, Datatype out) {
  if (is_float(out)) return image == out && (filter == out || filter == Datatype::kF32);
  return image == out && is_elementwise(out) &&
         (filter == Datatype::kQCInt8 || filter == Datatype::kQInt8);
}

Status NodeCheck::check_pooling() const {
  FERRY_RETURN_IF_ERROR(check_window(kPoolingNumbers));
  FERRY_RETURN_IF_ERROR(node().kind == NodeKind::kMaxPooling2d ? expect_same_elements()
                                                               : expect_one_datatype());
  return expect_output(FERRY_TRY(windowed(input(0).dims[3])));
}

Status NodeCheck::check_global_pooling() const {
  FERRY_RETURN_IF_ERROR(expect_image(input(0)));
  FERRY_RETURN_IF_ERROR(expect_one_datatype());
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  const Dims& from = input(0).dims;
  return expect_output((node().flags & kKeepDims) != 0 ? Dims{from[0], 1, 1, from[3]}
                                                       : Dims{from[0], from[3]});
}

Status NodeCheck::check_resize() const {
  FERRY_RETURN_IF_ERROR(expect_image(input(0)));
  FERRY_RETURN_IF_ERROR(expect_same_elements());
  FERRY_RETURN_IF_ERROR(expect_numbers(2));
  Dims dims = input(0).dims;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = node().numbers[i];
    if (size < 1 || size > INT32_MAX) return error(fmt::format("a size of {}", size));
    dims[i + 1] = static_cast<uint32_t>(size);
  }
  return expect_output(dims);
}

}  // namespace ferry::xnnpack
