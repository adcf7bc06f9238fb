// trace_heads follows the named axes forwards through the operators, then backwards from each view
// that splits features into heads to the linear node that made the features.
#include "graph/passes/head_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "formats/pte/operator_args.h"
#include "graph/graph.h"

namespace ferry::graph {
namespace {

// The heads of a result. nullopt means that the operator cannot be computed head by head.
using Traced = std::optional<HeadParts>;

bool is_fixed(const Dims& shape) { return std::ranges::all_of(shape, &Dim::is_static); }

HeadParts normal(HeadParts parts) { return head_count(parts) > 1 ? std::move(parts) : HeadParts{}; }

// Heads as a stride through the elements of a value: head h has the elements [h * stride, (h + 1) *
// stride), and the elements `count * stride` later, and so on.
struct HeadStride {
  int64_t count = 1, stride = 1;
};

// Returns nullopt if the heads are no such stride.
std::optional<HeadStride> stride_of(const Dims& shape, const HeadParts& parts) {
  HeadStride heads;
  int64_t inner = 1;
  for (size_t i = shape.size(); i-- > 0; inner *= shape[i].base) {
    if (parts[i] == 1) continue;
    const int64_t step = inner * (shape[i].base / parts[i]);
    if (heads.count == 1) heads.stride = step;
    if (step != heads.stride * heads.count) return std::nullopt;
    heads.count *= parts[i];
  }
  return heads;
}

// Returns nullopt if heads would begin or end inside an index of a dimension.
Traced layout_parts(const Dims& shape, const HeadStride& heads) {
  HeadParts parts(shape.size(), 1);
  int64_t inner = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const int64_t end = inner * shape[i].base;
    const int64_t low = std::max(inner, heads.stride);
    const int64_t high = std::min(end, heads.stride * heads.count);
    if (low < high) {
      if (high != end || high % low != 0 || low % inner != 0) return std::nullopt;
      parts[i] = high / low;
    }
    inner = end;
  }
  return head_count(parts) == heads.count ? Traced(parts) : std::nullopt;
}

Traced reshaped(const Dims& from, const HeadParts& parts, const Dims& to) {
  const std::optional<HeadStride> heads = stride_of(from, parts);
  return heads ? layout_parts(to, *heads) : std::nullopt;
}

// Returns the dimensions that are named as heads, if there are several heads.
HeadParts named_heads(const Dims& shape) {
  HeadParts parts(shape.size(), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].axis == Axis::kHead && shape[i].is_static()) parts[i] = shape[i].base;
  }
  return normal(std::move(parts));
}

size_t dim_of(const Arg& arg, size_t rank) {
  const int64_t dim = std::get<IntArg>(arg).number;
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}

ValueId tensor_arg(const Node& node, size_t arg) { return std::get<ValueId>(node.args[arg]); }
// Returns the tensor that an operator works on, which is its first argument (self, input).
ValueId first_arg(const Node& node) { return std::get<ValueId>(node.args.front()); }

// The heads of the values so far, and the rule of each operator.
class Rules {
 public:
  explicit Rules(const Graph& graph) : graph_(graph), parts_(graph.values.size()) {
    for (ValueId id : graph.inputs) set(id, named_heads(graph[id].shape));
  }

  const HeadParts& of(ValueId id) const { return parts_[static_cast<size_t>(id.index)]; }
  void set(ValueId id, HeadParts parts) {
    parts_[static_cast<size_t>(id.index)] = std::move(parts);
  }
  std::vector<HeadParts> take() { return std::move(parts_); }

  bool reads_heads(const Node& node) const {
    return std::ranges::any_of(used_values(node), [&](ValueId id) { return !of(id).empty(); });
  }

  // Applies the rule of a node that reads heads. An empty result means that every element of the
  // node's result needs all heads.
  Traced trace(const Node& node) {
    switch (node.op) {
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kDiv:
      case Op::kLogicalAnd:
        return elementwise(node, {tensor_arg(node, pte::ops::Binary::kSelf),
                                  tensor_arg(node, pte::ops::Binary::kOther)});
      case Op::kWhere:
        return elementwise(node, {tensor_arg(node, pte::ops::Where::kCondition),
                                  tensor_arg(node, pte::ops::Where::kSelf),
                                  tensor_arg(node, pte::ops::Where::kOther)});
      case Op::kMulScalar:
      case Op::kClamp:
      case Op::kRsqrt:
      case Op::kCos:
      case Op::kSin:
      case Op::kSigmoid:
      case Op::kExp:
      case Op::kLog1p:
      case Op::kTanh:
      case Op::kGelu:
      case Op::kRelu:
      case Op::kToCopy:
      case Op::kQuantize:
      case Op::kDequantize:
      case Op::kEqScalar:
      case Op::kGtScalar:
      case Op::kGeScalar:
      case Op::kLtScalar:
        return of(first_arg(node));
      case Op::kMean:
      case Op::kSum:
      case Op::kAmin:
        return reduce(node);
      case Op::kLayerNorm:
        return norm(node);
      case Op::kLinear:
        return linear(node);
      case Op::kBmm:
        return bmm(node);
      case Op::kSoftmax:
        return untouched(node, pte::ops::Softmax::kDim);
      case Op::kSlice:
        return untouched(node, pte::ops::SliceCopy::kDim);
      case Op::kSplit:
        return untouched(node, pte::ops::SplitWithSizes::kDim);
      case Op::kCat:
        return cat(node);
      case Op::kSelect:
        return select(node);
      case Op::kUnsqueeze:
        return unsqueeze(node);
      case Op::kExpand:
        return expand(node);
      case Op::kPermute:
        return permute(node);
      case Op::kView:
        return view(node);
      default:
        return std::nullopt;
    }
  }

  // Returns whether an operand fits, if it is broadcast to a result with `parts`. An activation
  // must have these heads, or serve all heads. A weight is cut as the result needs.
  bool fits_operand(ValueId id, const HeadParts& parts) {
    const HeadParts wanted = operand_parts(graph_[id].shape, parts);
    return of(id) == wanted || fits_weight(id, wanted);
  }
  // Returns whether `id` is a weight that can be cut into these parts, and is not cut differently
  // yet.
  bool fits_weight(ValueId id, const HeadParts& parts) {
    if (!of(id).empty() || graph_[id].origin != Value::Origin::kWeight) return false;
    if (!is_row_range(graph_[id].shape, parts)) return false;
    set(id, parts);
    return true;
  }

  // Returns the parts of an operand of this shape. Dimensions of size 1 serve all heads.
  static HeadParts operand_parts(const Dims& shape, const HeadParts& parts) {
    HeadParts wanted(shape.size(), 1);
    const size_t added = parts.size() - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != Dim(1)) wanted[i] = parts[i + added];
    }
    return normal(std::move(wanted));
  }

 private:
  // Returns whether the part of a head is one run of elements.
  static bool is_row_range(const Dims& shape, const HeadParts& parts) {
    size_t first = 0;
    while (first < shape.size() && shape[first] == Dim(1)) ++first;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] > 1 && i != first) return false;
    }
    return true;
  }

  // Returns whether head h of a result needs head h * count(part) / count(whole) of an operand.
  static bool is_leading(const HeadParts& part, const HeadParts& whole) {
    const size_t added = whole.size() - part.size();
    bool ended = false;
    for (size_t i = 0; i < part.size(); ++i) {
      if (whole[i + added] > 1 && part[i] == 1) ended = true;
      if (part[i] > 1 && ended) return false;
    }
    return true;
  }

  Traced elementwise(const Node& node, const std::vector<ValueId>& operands) {
    HeadParts parts(graph_[node.outs[0]].shape.size(), 1);
    for (ValueId id : operands) {
      const size_t added = parts.size() - graph_[id].shape.size();
      for (size_t i = 0; i < of(id).size(); ++i) {
        parts[i + added] = std::max(parts[i + added], of(id)[i]);
      }
    }
    for (ValueId id : operands) {
      if (!fits_operand(id, parts) || !is_leading(of(id), parts)) return std::nullopt;
    }
    return parts;
  }

  // Reductions over the last dimension.
  Traced reduce(const Node& node) {
    HeadParts parts = of(first_arg(node));
    if (parts.back() > 1) return HeadParts{};
    parts.resize(graph_[node.outs[0]].shape.size());
    return parts;
  }

  // A norm computes each row separately, with a weight and a bias that serve all rows. Means and
  // deviations have the shape of the rows.
  Traced norm(const Node& node) {
    const HeadParts& parts = of(first_arg(node));
    return parts.empty() || parts.back() > 1 ? HeadParts{} : parts;
  }

  Traced linear(const Node& node) {
    const HeadParts& parts = of(first_arg(node));
    if (parts.empty()) return std::nullopt;
    return parts.back() > 1 ? HeadParts{} : parts;
  }

  // bmm is [B,m,k] x [B,k,n]: batches are heads, or groups of heads whose rows are those of several
  // heads. A weight has a matrix for each head.
  Traced bmm(const Node& node) {
    const ValueId a = tensor_arg(node, pte::ops::Bmm::kSelf),
                  b = tensor_arg(node, pte::ops::Bmm::kMat2);
    const HeadParts none = {1, 1, 1};
    for (const auto& [weight, other] : {std::pair(a, b), std::pair(b, a)}) {
      if (of(other).empty() || graph_[weight].origin != Value::Origin::kWeight) continue;
      if (!fits_operand(weight, of(other))) return std::nullopt;
    }
    const HeadParts& left = of(a).empty() ? none : of(a);
    const HeadParts& right = of(b).empty() ? none : of(b);
    const int64_t batches = graph_[a].shape[0].base;
    const bool whole = left[0] == right[0] && (left[0] == 1 || left[0] == batches);
    if (!whole || left[2] > 1 || right[1] > 1 || right[2] > 1) return std::nullopt;
    return HeadParts{left[0], left[1], 1};
  }

  // Operators along one dimension, which must not be that of the heads.
  Traced untouched(const Node& node, size_t dim_arg) {
    const HeadParts& parts = of(first_arg(node));
    if (parts.empty() || parts[dim_of(node.args[dim_arg], parts.size())] > 1) return std::nullopt;
    return parts;
  }

  Traced cat(const Node& node) {
    const std::vector<ValueId>& items =
        std::get<TensorListArg>(node.args[pte::ops::Cat::kTensors]).items;
    const HeadParts& parts = of(items[0]);
    const bool alike = std::ranges::all_of(items, [&](ValueId id) { return of(id) == parts; });
    if (!alike || parts[dim_of(node.args[pte::ops::Cat::kDim], parts.size())] > 1)
      return std::nullopt;
    return parts;
  }

  Traced select(const Node& node) {
    Traced parts = untouched(node, pte::ops::SelectCopy::kDim);
    if (!parts) return std::nullopt;
    parts->erase(parts->begin() + static_cast<std::ptrdiff_t>(dim_of(
                                      node.args[pte::ops::SelectCopy::kDim], parts->size())));
    return parts;
  }

  Traced unsqueeze(const Node& node) {
    HeadParts parts = of(first_arg(node));
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(dim_of(
                                     node.args[pte::ops::Unsqueeze::kDim], parts.size() + 1)),
                 1);
    return parts;
  }

  // Dimensions that are expanded have size 1, and serve all heads.
  Traced expand(const Node& node) {
    HeadParts parts = of(first_arg(node));
    const size_t added = graph_[node.outs[0]].shape.size() - parts.size();
    parts.insert(parts.begin(), added, 1);
    return parts;
  }

  // Groups must stay before the heads of a group.
  Traced permute(const Node& node) {
    const HeadParts& from = of(first_arg(node));
    HeadParts to;
    size_t last = 0;
    for (const IntArg& arg : std::get<std::vector<IntArg>>(node.args[pte::ops::Permute::kDims])) {
      const size_t dim = dim_of(arg, from.size());
      to.push_back(from[dim]);
      if (from[dim] == 1) continue;
      if (dim < last) return std::nullopt;
      last = dim;
    }
    return to;
  }

  Traced view(const Node& node) {
    const ValueId x = first_arg(node);
    const Dims& to = graph_[node.outs[0]].shape;
    if (!is_fixed(graph_[x].shape) || !is_fixed(to)) return std::nullopt;
    return reshaped(graph_[x].shape, of(x), to);
  }

  const Graph& graph_;
  std::vector<HeadParts> parts_;
};

class Tracer {
 public:
  explicit Tracer(const Graph& graph) : graph_(graph), rules_(graph), makers_(graph.values.size()) {
    for (const Node& node : graph.nodes) {
      for (ValueId out : node.outs) makers_[static_cast<size_t>(out.index)] = &node;
    }
  }

  Result<HeadLayouts> run() {
    for (const Node& node : graph_.nodes) trace(node);
    for (const Node* node : undivided_) {
      if (layers_.contains(node->layer)) return refuse(*node);
    }
    for (const Node* view : origins_) {
      if (layers_.contains(view->layer)) FERRY_RETURN_IF_ERROR(divide_source(*view));
    }
    return HeadLayouts{rules_.take(), std::move(layers_)};
  }

 private:
  static Failure refuse(const Node& node) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("single-head attention: layer {}: {} cannot be divided into heads",
                            node.layer, op_name(node.op)));
  }

  void trace(const Node& node) {
    if (rules_.reads_heads(node)) {
      const Traced parts = rules_.trace(node);
      if (!parts) undivided_.push_back(&node);
      if (parts) set_outs(node, normal(*parts));
    } else if (node.op == Op::kView) {
      set_outs(node, named_heads(graph_[node.outs[0]].shape));
      if (!rules_.of(node.outs[0]).empty()) origins_.push_back(&node);
    }
    note_attention(node);
  }

  void set_outs(const Node& node, const HeadParts& parts) {
    for (ValueId out : node.outs) rules_.set(out, parts);
  }

  // A softmax over heads makes its layer one with attention. So does a softmax whose heads were
  // lost on the way, which is refused.
  void note_attention(const Node& node) {
    if (node.op == Op::kSdpa) {
      layers_.insert(node.layer);
      undivided_.push_back(&node);
    }
    if (node.op != Op::kSoftmax) return;
    const ValueId scores = first_arg(node);
    if (!rules_.of(scores).empty()) {
      layers_.insert(node.layer);
    } else if (!named_heads(graph_[scores].shape).empty()) {
      layers_.insert(node.layer);
      undivided_.push_back(&node);
    }
  }

  // Makes the source of a view into heads head by head too.
  Status divide_source(const Node& view) {
    const ValueId x = first_arg(view);
    const Dims& heads = graph_[view.outs[0]].shape;
    if (!is_fixed(heads) || !is_fixed(graph_[x].shape)) return refuse(view);
    const Traced parts = reshaped(heads, rules_.of(view.outs[0]), graph_[x].shape);
    return parts ? divide(x, *parts) : Status(refuse(view));
  }

  Status divide(ValueId id, const HeadParts& parts) {
    if (rules_.of(id) == parts || rules_.fits_weight(id, parts)) return {};
    const Node* node = makers_[static_cast<size_t>(id.index)];
    if (node == nullptr || !rules_.of(id).empty()) return divide_failed(id);
    rules_.set(id, parts);
    switch (node->op) {
      case Op::kLinear:
        return divide_weight(*node, parts);
      case Op::kMulScalar:
      case Op::kClamp:
        return divide(first_arg(*node), parts);
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kDiv:
        FERRY_RETURN_IF_ERROR(
            divide_operand(*node, tensor_arg(*node, pte::ops::Binary::kSelf), parts));
        return divide_operand(*node, tensor_arg(*node, pte::ops::Binary::kOther), parts);
      default:
        return refuse(*node);
    }
  }

  Status divide_failed(ValueId id) const {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("single-head attention: '{}' cannot be divided into heads", graph_[id].name));
  }

  // Rows of the weight are columns of the result.
  Status divide_weight(const Node& node, const HeadParts& parts) {
    const ValueId weight = tensor_arg(node, pte::ops::Linear::kWeight);
    const bool in_columns = head_count(parts) == parts.back();
    return in_columns && rules_.fits_operand(weight, {parts.back(), 1}) ? Status{} : refuse(node);
  }

  Status divide_operand(const Node& node, ValueId id, const HeadParts& parts) {
    const HeadParts wanted = Rules::operand_parts(graph_[id].shape, parts);
    if (wanted.empty() || rules_.fits_operand(id, parts)) return {};
    if (wanted.size() != parts.size()) return refuse(node);
    return divide(id, wanted);
  }

  const Graph& graph_;
  Rules rules_;
  std::vector<const Node*> makers_;     // by value
  std::vector<const Node*> undivided_;  // nodes that read heads and cannot be computed head by head
  std::vector<const Node*> origins_;    // views that split features into heads
  std::set<int32_t> layers_;
};

}  // namespace

int64_t head_count(const HeadParts& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{1}, std::multiplies<>());
}

Dims part_shape(const Dims& shape, const HeadParts& parts) {
  Dims out = shape;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > 1) out[i].base /= parts[i];
  }
  return out;
}

bool HeadLayouts::is_per_head(const Node& node) const {
  return layers.contains(node.layer) && !node.outs.empty() && !of(node.outs[0]).empty();
}

Result<HeadLayouts> trace_heads(const Graph& graph) { return Tracer(graph).run(); }

}  // namespace ferry::graph
