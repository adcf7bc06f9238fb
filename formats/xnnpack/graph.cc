#include "formats/xnnpack/graph.h"

#include <fmt/format.h>

#include <array>

#include "formats/xnnpack/node_table.h"

namespace ferry::xnnpack {

namespace {

using Kind = NodeKind;

// Element i is the kind with code i + 1.
constexpr std::array kNodes = {
    NodeInfo{Kind::kAdd, "Add", Form::kBinary, 2, true},
    NodeInfo{Kind::kFullyConnected, "FullyConnected", Form::kFullyConnected, 3, true},
    NodeInfo{Kind::kSoftmax, "Softmax", Form::kUnary},
    NodeInfo{Kind::kSigmoid, "Sigmoid", Form::kUnary},
    NodeInfo{Kind::kStaticTranspose, "StaticTranspose", Form::kTranspose},
    NodeInfo{Kind::kClamp, "Clamp", Form::kUnary, 1, true},
    NodeInfo{Kind::kConv2d, "Conv2d", Form::kConvolution, 3, true},
    NodeInfo{Kind::kDiv, "Div", Form::kBinary, 2, true},
    NodeInfo{Kind::kStaticResizeBilinear2d, "StaticResizeBilinear2d", Form::kResize},
    NodeInfo{Kind::kStaticConstantPad, "StaticConstantPad", Form::kPad},
    NodeInfo{Kind::kAvgPooling2d, "AvgPooling2d", Form::kPooling, 1, true},
    NodeInfo{Kind::kMinimum, "Minimum", Form::kBinary, 2},
    NodeInfo{Kind::kDepthwiseConv2d, "DepthwiseConv2d", Form::kConvolution, 3, true},
    NodeInfo{Kind::kMaxPooling2d, "MaxPooling2d", Form::kPooling, 1, true},
    NodeInfo{Kind::kMultiply, "Multiply", Form::kBinary, 2, true},
    NodeInfo{Kind::kSubtract, "Subtract", Form::kBinary, 2, true},
    NodeInfo{Kind::kFloor, "Floor", Form::kUnary},
    NodeInfo{Kind::kConvert, "Convert", Form::kUnary},
    NodeInfo{Kind::kGlobalAvgPooling2d, "GlobalAvgPooling2d", Form::kUnary, 1, true},
    NodeInfo{Kind::kStaticReshape, "StaticReshape", Form::kReshape},
    NodeInfo{Kind::kArgMaxPooling2d, "ArgMaxPooling2d"},
    NodeInfo{Kind::kSquareRoot, "SquareRoot", Form::kUnary},
    NodeInfo{Kind::kCeiling, "Ceiling", Form::kUnary},
    NodeInfo{Kind::kHardswish, "Hardswish", Form::kUnary},
    NodeInfo{Kind::kLeakyRelu, "LeakyRelu", Form::kFactor},
    NodeInfo{Kind::kMaximum, "Maximum", Form::kBinary, 2},
    NodeInfo{Kind::kNegate, "Negate", Form::kUnary},
    NodeInfo{Kind::kSquare, "Square", Form::kUnary},
    NodeInfo{Kind::kElu, "Elu", Form::kFactor},
    NodeInfo{Kind::kAbs, "Abs", Form::kUnary},
    NodeInfo{Kind::kPrelu, "Prelu", Form::kBinary, 2},
    NodeInfo{Kind::kConcatenate2, "Concatenate2", Form::kConcatenate, 2},
    NodeInfo{Kind::kConcatenate3, "Concatenate3", Form::kConcatenate, 3},
    NodeInfo{Kind::kConcatenate4, "Concatenate4", Form::kConcatenate, 4},
    NodeInfo{Kind::kStaticSlice, "StaticSlice", Form::kSlice},
    NodeInfo{Kind::kScaledDotProductAttention, "ScaledDotProductAttention"},
    NodeInfo{Kind::kBatchMatrixMultiply, "BatchMatrixMultiply", Form::kBinary, 2},
    NodeInfo{Kind::kConcatenate5, "Concatenate5", Form::kConcatenate, 5},
    NodeInfo{Kind::kConvTranspose2d, "ConvTranspose2d", Form::kConvolution, 3, true},
    NodeInfo{Kind::kReciprocalSquareRoot, "ReciprocalSquareRoot", Form::kUnary},
    NodeInfo{Kind::kLog, "Log", Form::kUnary},
    NodeInfo{Kind::kGelu, "Gelu", Form::kUnary},
    NodeInfo{Kind::kTanh, "Tanh", Form::kUnary},
    NodeInfo{Kind::kExp, "Exp", Form::kUnary},
    NodeInfo{Kind::kSin, "Sin", Form::kUnary},
    NodeInfo{Kind::kCopy, "Copy", Form::kUnary},
    NodeInfo{Kind::kCos, "Cos", Form::kUnary},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kNodes.size(); ++i) {
    if (static_cast<size_t>(kNodes[i].kind) != i + 1) return false;
  }
  return static_cast<size_t>(Kind::kCos) == kNodes.size();
}
static_assert(in_order());

constexpr std::array<std::string_view, 15> kDatatypes = {
    "",       "fp32",   "fp16",   "qint8",  "quint8", "qint32", "qcint8", "qcint32",
    "qcint4", "qdint8", "qbint4", "qpint8", "int32",  "pfp32",  "bf16"};
static_assert(static_cast<size_t>(Datatype::kBF16) + 1 == kDatatypes.size());

}  // namespace

std::optional<int64_t> window_output(const Node& node, bool along_x, int64_t in) {
  if (in > INT32_MAX) return std::nullopt;
  const auto number = [&](size_t of_y) { return node.numbers[of_y + (along_x ? 1 : 0)]; };
  const int64_t padding =
      node.numbers[along_x ? kPadLeft : kPadTop] + node.numbers[along_x ? kPadRight : kPadBottom];
  // In average pooling the dilation means nothing.
  const int64_t dilation = node.kind == NodeKind::kAvgPooling2d ? 1 : number(kDilationY);
  const int64_t reach = dilation * (number(kKernelY) - 1) + 1;
  if (node.kind == NodeKind::kConvTranspose2d) {
    const int64_t out = number(kStrideY) * (in - 1) + reach + number(kAdjustY) - padding;
    return out > 0 && in > 0 ? std::optional(out) : std::nullopt;
  }
  if (in + padding < reach) return std::nullopt;
  return (in + padding - reach) / number(kStrideY) + 1;
}

const NodeInfo* find_node_info(NodeKind kind) {
  const auto code = static_cast<size_t>(kind);
  return code == 0 || code > kNodes.size() ? nullptr : &kNodes[code - 1];
}

std::string node_name(NodeKind kind) {
  const NodeInfo* info = find_node_info(kind);
  return info ? std::string(info->name) : fmt::format("kind {}", static_cast<int>(kind));
}

std::string datatype_name(Datatype datatype) {
  const auto code = static_cast<int>(datatype);
  const bool known = code > 0 && static_cast<size_t>(code) < kDatatypes.size();
  return known ? std::string(kDatatypes[static_cast<size_t>(code)])
               : fmt::format("datatype {}", code);
}

}  // namespace ferry::xnnpack
