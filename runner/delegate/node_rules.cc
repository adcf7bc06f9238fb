#include "runner/delegate/node_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/checked.h"
#include "kernels/compute.h"
#include "kernels/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::runner {
namespace {

using kernels::BinaryOp;
using kernels::UnaryOp;
using kernels::Value;
using xnnpack::Node;
using xnnpack::NodeKind;

constexpr int64_t kMaxSize = std::numeric_limits<uint32_t>::max();

// -- checks of the other members of a node

Status check_list(std::span<const int64_t> list, size_t most) {
  if (list.size() > most) return bad_input(fmt::format("more than {} dimensions", kMaxNodeRank));
  for (int64_t number : list) {
    if (number < 0 || number > kMaxSize) return bad_input(fmt::format("the number {}", number));
  }
  return {};
}

Status check_shape(const Node& node) {
  FERRY_RETURN_IF_ERROR(check_list(node.numbers, kMaxNodeRank));
  if (std::ranges::count(node.numbers, 0) <= 1) return {};
  return bad_input(fmt::format("more than one 0 in the shape [{}]", fmt::join(node.numbers, ", ")));
}

Status check_permutation(const Node& node) {
  FERRY_RETURN_IF_ERROR(check_list(node.numbers, kMaxNodeRank));
  std::vector<int64_t> sorted = node.numbers;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) {
      return bad_input(fmt::format("[{}] is no permutation", fmt::join(node.numbers, ", ")));
    }
  }
  return {};
}

Status check_slice(const Node& node) {
  FERRY_RETURN_IF_ERROR(check_list(node.numbers, 2 * kMaxNodeRank));
  const size_t rank = node.numbers.size() / 2;
  if (node.numbers.size() != 2 * rank) return bad_input("not as many sizes as offsets");
  for (size_t dim = 0; dim < rank; ++dim) {
    if (node.numbers[rank + dim] == 0 && node.numbers[dim] != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("a slice without a size from {} on", node.numbers[dim]));
    }
  }
  return {};
}

Status check_axis(const Node& node) {
  return node.numbers.size() == 1 ? Status() : bad_input("no axis");
}

Status check_factor(const Node& node) {
  return node.factors.size() == 1 ? Status() : bad_input("no factor");
}

Status check_limits(const Node& node) {
  return node.output_range ? check_range(*node.output_range) : bad_input("no limits");
}

// -- arguments

void add_list(const Node& node, KernelArgs& args) { args.integers(node.numbers); }

// Adds a shape in the form of view_copy, where -1 is inferred.
void add_shape(const Node& node, KernelArgs& args) {
  std::vector<int64_t> shape = node.numbers;
  std::ranges::replace(shape, 0, -1);
  args.integers(shape);
}

void add_slice(const Node& node, KernelArgs& args) {
  const std::span<const int64_t> numbers = node.numbers;
  args.integers(numbers.first(numbers.size() / 2));
  args.integers(numbers.subspan(numbers.size() / 2));
}

void add_axis(const Node& node, KernelArgs& args) { args.integer(node.numbers[0]); }
void add_factor(const Node& node, KernelArgs& args) { args.real(node.factors[0]); }

void add_limits(const Node& node, KernelArgs& args) {
  args.real(node.output_range->min);
  args.real(node.output_range->max);
}

void add_softmax(const Node&, KernelArgs& args) {
  args.integer(-1);
  args.boolean(false);
}

void add_exact(const Node&, KernelArgs& args) { args.text("none"); }

// -- the table

constexpr NodeRule binary(NodeKind kind, BinaryOp op) {
  return {kind, 2, kernels::binary_tensor, static_cast<int>(op)};
}
constexpr NodeRule unary(NodeKind kind, UnaryOp op) {
  return {kind, 1, kernels::unary, static_cast<int>(op)};
}
constexpr NodeRule join(NodeKind kind, size_t inputs) {
  return {kind, inputs, kernels::cat, 0, add_axis, check_axis};
}

// In kSquare the input is both factors.
constexpr NodeRule kRules[] = {
    binary(NodeKind::kAdd, BinaryOp::kAdd),
    binary(NodeKind::kSubtract, BinaryOp::kSub),
    binary(NodeKind::kMultiply, BinaryOp::kMul),
    binary(NodeKind::kDiv, BinaryOp::kDiv),
    binary(NodeKind::kMinimum, BinaryOp::kMinimum),
    binary(NodeKind::kMaximum, BinaryOp::kMaximum),
    {NodeKind::kSquare, 1, kernels::binary_tensor, static_cast<int>(BinaryOp::kMul)},
    unary(NodeKind::kSigmoid, UnaryOp::kSigmoid),
    unary(NodeKind::kReciprocalSquareRoot, UnaryOp::kRsqrt),
    unary(NodeKind::kSquareRoot, UnaryOp::kSqrt),
    unary(NodeKind::kAbs, UnaryOp::kAbs),
    unary(NodeKind::kNegate, UnaryOp::kNeg),
    unary(NodeKind::kExp, UnaryOp::kExp),
    unary(NodeKind::kLog, UnaryOp::kLog),
    unary(NodeKind::kTanh, UnaryOp::kTanh),
    unary(NodeKind::kSin, UnaryOp::kSin),
    unary(NodeKind::kCos, UnaryOp::kCos),
    unary(NodeKind::kFloor, UnaryOp::kFloor),
    unary(NodeKind::kCeiling, UnaryOp::kCeil),
    {NodeKind::kGelu, 1, kernels::gelu, 0, add_exact},
    {NodeKind::kClamp, 1, kernels::clamp, 0, add_limits, check_limits},
    {NodeKind::kHardswish, 1, hardswish},
    {NodeKind::kLeakyRelu, 1, leaky_relu, 0, add_factor, check_factor},
    {NodeKind::kElu, 1, elu, 0, add_factor, check_factor},
    {NodeKind::kSoftmax, 1, kernels::softmax, 0, add_softmax},
    {NodeKind::kStaticReshape, 1, kernels::view_copy, 0, add_shape, check_shape},
    {NodeKind::kStaticTranspose, 1, kernels::permute, 0, add_list, check_permutation},
    {NodeKind::kStaticSlice, 1, slice_all, 0, add_slice, check_slice},
    {NodeKind::kCopy, 1, kernels::same_copy, 1},
    join(NodeKind::kConcatenate2, 2),
    join(NodeKind::kConcatenate3, 3),
    join(NodeKind::kConcatenate4, 4),
    join(NodeKind::kConcatenate5, 5),
    {NodeKind::kBatchMatrixMultiply, 2, batch_product},
};

using kernels::Dims;
using xnnpack::Node;
using xnnpack::NodeKind;

std::string text(const Dims& sizes) { return fmt::format("[{}]", fmt::join(sizes.span(), ", ")); }

Failure mismatch(const Dims& a, const Dims& b) {
  return bad_input(fmt::format("shape mismatch: {} and {}", text(a), text(b)));
}

Result<Dims> linear(const Dims& input, const Dims& filter) {
  if (input.empty() || input.back() != filter[1]) return mismatch(input, filter);
  Dims out = input;
  out[out.rank() - 1] = filter[0];
  return out;
}

Result<Dims> batch_product(const Dims& a, const Dims& b) {
  const int rank = a.rank();
  if (rank < 2 || b.rank() != rank || a.back() != b[rank - 2]) return mismatch(a, b);
  for (int dim = 0; dim < rank - 2; ++dim) {
    if (a[dim] != b[dim]) return mismatch(a, b);
  }
  Dims out = a;
  out[rank - 1] = b.back();
  return out;
}

// A size of 0 is inferred.
Result<Dims> reshaped(const Node& node, const Dims& input) {
  Dims out{std::span(node.numbers)};
  int inferred = -1;
  for (int dim = 0; dim < out.rank(); ++dim) {
    if (out[dim] != 0) continue;
    inferred = dim;
    out[dim] = 1;
  }
  const int64_t count = kernels::numel(input.span());
  const std::optional<int64_t> known = checked_numel(out.span());
  if (known && inferred >= 0) out[inferred] = count / *known;
  if (known && *known * (inferred >= 0 ? out[inferred] : 1) == count) return out;
  return bad_input(
      fmt::format("{} cannot have the shape [{}]", text(input), fmt::join(node.numbers, ", ")));
}

Result<Dims> transposed(const Node& node, const Dims& input) {
  if (node.numbers.size() != static_cast<size_t>(input.rank())) {
    return bad_input(fmt::format("{} has not {} dimensions", text(input), node.numbers.size()));
  }
  Dims out;
  for (int64_t dim : node.numbers) out.push_back(input[static_cast<int>(dim)]);
  return out;
}

// The node has offsets, then sizes. A size of 0 is the whole dimension.
Result<Dims> sliced(const Node& node, const Dims& input) {
  const size_t rank = node.numbers.size() / 2;
  if (rank != static_cast<size_t>(input.rank())) {
    return bad_input(fmt::format("{} has not {} dimensions", text(input), rank));
  }
  Dims out;
  for (size_t dim = 0; dim < rank; ++dim) {
    const int64_t all = input[static_cast<int>(dim)];
    const int64_t offset = node.numbers[dim], size = node.numbers[rank + dim];
    out.push_back(size == 0 ? all : size);
    if (offset > all || out.back() > all - offset) {
      return bad_input(fmt::format("{} elements from {} are not inside of dimension {} of {}",
                                   out.back(), offset, dim, text(input)));
    }
  }
  return out;
}

Result<Dims> joined(const Node& node, std::span<const Dims* const> inputs) {
  Dims out = *inputs[0];
  const int dim = FERRY_TRY(kernels::wrap_dim(node.numbers[0], out.rank()));
  for (const Dims* input : inputs.subspan(1)) {
    Dims other = *input;
    if (out.empty() || other.rank() != out.rank()) return mismatch(out, other);
    const std::optional<int64_t> sum = checked_add(out[dim], other[dim]);
    other[dim] = out[dim];
    if (!sum || !(other == out)) return mismatch(*inputs[0], *input);
    out[dim] = *sum;
  }
  return out;
}

Result<Dims> shape_of(const Node& node, std::span<const Dims* const> inputs) {
  switch (node.kind) {
    case NodeKind::kFullyConnected:
      return linear(*inputs[0], *inputs[1]);
    case NodeKind::kBatchMatrixMultiply:
      return batch_product(*inputs[0], *inputs[1]);
    case NodeKind::kStaticReshape:
      return reshaped(node, *inputs[0]);
    case NodeKind::kStaticTranspose:
      return transposed(node, *inputs[0]);
    case NodeKind::kStaticSlice:
      return sliced(node, *inputs[0]);
    case NodeKind::kConcatenate2:
    case NodeKind::kConcatenate3:
    case NodeKind::kConcatenate4:
    case NodeKind::kConcatenate5:
      return joined(node, inputs);
    case NodeKind::kConv2d:
    case NodeKind::kDepthwiseConv2d:
    case NodeKind::kConvTranspose2d:
    case NodeKind::kAvgPooling2d:
    case NodeKind::kMaxPooling2d:
    case NodeKind::kGlobalAvgPooling2d:
    case NodeKind::kStaticResizeBilinear2d:
    case NodeKind::kStaticConstantPad:
    case NodeKind::kPrelu:
      return image_shape(node, inputs);
    default:
      return inputs.size() == 1 ? *inputs[0] : kernels::broadcast(*inputs[0], *inputs[1]);
  }
}

using kernels::Dims;
using kernels::RowInput;
using kernels::RowParams;
using kernels::Tensor;

struct Hardswish {
  float operator()(float x, float) const { return x * std::clamp(x / 6 + 0.5F, 0.0F, 1.0F); }
};
struct LeakyRelu {
  float operator()(float x, float slope) const { return x < 0 ? x * slope : x; }
};
struct Elu {
  float operator()(float x, float alpha) const { return x < 0 ? alpha * std::expm1(x) : x; }
};

template <class F>
void row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const float* x = static_cast<const float*>(in[0].values);
  const float factor = static_cast<float>(params.a.real);
  for (int64_t i = 0; i < n; ++i) {
    static_cast<float*>(out)[i] = F()(x[in[0].many ? i : 0], factor);
  }
}

template <class F>
Status each(const kernels::Call& call, const kernels::Number& factor, Tensor& out) {
  const kernels::Operand operands[] = {kernels::Operand(kernels::tensor(call, 0))};
  return kernels::elementwise(call, operands, out, kernels::Compute::kF32,
                              kernels::RowResult::kSame, row<F>, {factor});
}

}  // namespace

Value* KernelArgs::make(Value::Kind kind) {
  made_.push_back({.kind = kind});
  return &made_.back();
}

Value& KernelArgs::add(Value::Kind kind) {
  args_.push_back(make(kind));
  return *args_.back();
}

void KernelArgs::tensor(kernels::Tensor* tensor) { add(Value::Kind::kTensor).tensor = tensor; }
void KernelArgs::boolean(bool value) { add(Value::Kind::kBool).boolean = value; }
void KernelArgs::real(double value) { add(Value::Kind::kDouble).real = value; }
void KernelArgs::integer(int64_t value) { add(Value::Kind::kInt).integer = value; }
void KernelArgs::text(std::string value) { add(Value::Kind::kString).text = std::move(value); }

void KernelArgs::none() { add(Value::Kind::kNone); }

void KernelArgs::tensors(std::span<kernels::Tensor* const> tensors) {
  Value& list = add(Value::Kind::kTensorList);
  for (kernels::Tensor* tensor : tensors) {
    list.items.push_back(make(Value::Kind::kTensor));
    list.items.back()->tensor = tensor;
  }
}

void KernelArgs::integers(std::span<const int64_t> values) {
  Value& list = add(Value::Kind::kIntList);
  for (int64_t value : values) {
    list.items.push_back(make(Value::Kind::kInt));
    list.items.back()->integer = value;
  }
}

const NodeRule* find_node_rule(NodeKind kind) {
  for (const std::span<const NodeRule> rules : {std::span<const NodeRule>(kRules), image_rules()}) {
    const auto rule = std::ranges::find(rules, kind, &NodeRule::kind);
    if (rule != rules.end()) return &*rule;
  }
  return nullptr;
}

void add_node_args(const NodeRule& rule, const Node& node, std::span<kernels::Tensor* const> inputs,
                   kernels::Tensor* out, KernelArgs& args) {
  if (rule.run == kernels::cat) {
    args.tensors(inputs);
  } else {
    for (kernels::Tensor* input : inputs) args.tensor(input);
    for (size_t absent = inputs.size(); absent < rule.inputs; ++absent) args.none();
  }
  if (rule.kind == NodeKind::kSquare) args.tensor(inputs[0]);
  if (rule.add_args != nullptr) rule.add_args(node, args);
  args.tensor(out);
}

bool clamps_result(NodeKind kind) {
  return kind == NodeKind::kAdd || kind == NodeKind::kSubtract || kind == NodeKind::kMultiply ||
         kind == NodeKind::kDiv || kind == NodeKind::kFullyConnected || kind == NodeKind::kConv2d ||
         kind == NodeKind::kDepthwiseConv2d || kind == NodeKind::kConvTranspose2d ||
         kind == NodeKind::kAvgPooling2d || kind == NodeKind::kMaxPooling2d ||
         kind == NodeKind::kGlobalAvgPooling2d;
}

Status check_range(const xnnpack::MinMax& range) {
  if (range.min <= range.max) return {};
  return bad_input(fmt::format("limits from {} to {}", range.min, range.max));
}

bool limits(const xnnpack::MinMax& range) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return range.min > -kInfinity || range.max < kInfinity;
}

Result<Dims> result_shape(const Node& node, std::span<const Dims* const> inputs) {
  const Dims out = FERRY_TRY(shape_of(node, inputs));
  const std::optional<int64_t> count = checked_numel(out.span());
  if (count && checked_mul<int64_t>(*count, sizeof(double))) return out;
  return bad_input(fmt::format("the size of {} overflows", text(out)));
}

Status hardswish(const kernels::Call& call) {
  return each<Hardswish>(call, {}, kernels::tensor(call, 1));
}

Status leaky_relu(const kernels::Call& call) {
  return each<LeakyRelu>(call, kernels::number(call, 1), kernels::tensor(call, 2));
}

Status elu(const kernels::Call& call) {
  return each<Elu>(call, kernels::number(call, 1), kernels::tensor(call, 2));
}

Status slice_all(const kernels::Call& call) {
  const Tensor& self = kernels::tensor(call, 0);
  const Dims offsets = FERRY_TRY(kernels::int_list(call, 1));
  Dims sizes = FERRY_TRY(kernels::int_list(call, 2));
  Tensor& out = kernels::tensor(call, 3);
  const Dims strides = kernels::contiguous_strides(self.sizes);
  int64_t skip = 0;
  for (int dim = 0; dim < self.rank(); ++dim) {
    if (sizes[dim] == 0) sizes[dim] = self.size(dim);
    skip += offsets[dim] * strides[dim];
  }
  FERRY_RETURN_IF_ERROR(kernels::resize(out, sizes));
  kernels::strided_copy(call.pool, sizes, self.element_bytes(),
                        kernels::strided(self, skip, strides), kernels::strided(out));
  return {};
}

Status batch_product(const kernels::Call& call) {
  const Tensor& a = kernels::tensor(call, 0);
  const Tensor& b = kernels::tensor(call, 1);
  Tensor& out = kernels::tensor(call, 2);
  const int rank = a.rank();
  const int64_t m = a.size(rank - 2), k = a.size(rank - 1), n = b.size(rank - 1);
  Dims sizes = a.sizes;
  sizes[rank - 1] = n;
  FERRY_RETURN_IF_ERROR(kernels::resize(out, sizes));
  if (out.numel == 0) return {};
  kernels::bmm_f32(a.as<float>(), b.as<float>(), out.as<float>(), out.numel / (m * n), m, n, k,
                   call.pool);
  return {};
}

}  // namespace ferry::runner
