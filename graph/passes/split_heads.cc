// split_heads replaces attention of several heads by attention of one head each.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/strided.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/graph.h"
#include "graph/passes/head_layout.h"
#include "graph/passes/passes.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// The number of heads into which a weight is cut, by the weight's name.
using CutWeights = std::map<std::string, int64_t>;

// Rewrites one graph. Nodes that are computed head by head are emitted when a node needs all heads,
// head after head, so that memory holds the scores of one head at a time.
class Splitter {
 public:
  Splitter(Graph& graph, HeadLayouts layouts, CutWeights& cut)
      : graph_(graph), layouts_(std::move(layouts)), cut_(cut) {
    for (ValueId id : graph.outputs) kept_.insert(id);
    for (const Probe& probe : graph.probes) kept_.insert(probe.value);
  }

  Status run() {
    const std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (const Node& node : nodes) {
      if (!layouts_.is_per_head(node)) continue;
      for (ValueId out : node.outs) makers_[out] = &node;
    }
    for (const Node& node : nodes) FERRY_RETURN_IF_ERROR(add(node));
    graph_ = remove_dead(std::move(graph_));
    return validate(graph_);
  }

 private:
  Status add(const Node& node) {
    layer_ = node.layer;
    if (layouts_.is_per_head(node)) {
      for (ValueId out : node.outs) {
        if (kept_.contains(out)) FERRY_RETURN_IF_ERROR(join(out));
      }
      return {};
    }
    for (ValueId id : used_values(node)) {
      if (makers_.contains(id)) FERRY_RETURN_IF_ERROR(join(id));
    }
    graph_.nodes.push_back(node);
    return {};
  }

  // Emits all heads and joins them side by side. The result keeps its value, so that readers,
  // outputs and probes stay unchanged.
  Status join(ValueId id) {
    if (!joined_.insert(id).second) return {};
    const HeadParts parts = layouts_.of(id);
    const auto dim = std::ranges::find_if(parts, [](int64_t count) { return count > 1; });
    if (*dim != head_count(parts)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("single-head attention: layer {}: {} makes heads in two dimensions",
                              layer_, op_name(makers_.at(id)->op)));
    }
    TensorListArg pieces;
    for (int64_t head = 0; head < *dim; ++head) {
      pieces.items.push_back(FERRY_TRY(part(id, head)));
    }
    graph_.nodes.push_back(
        {Op::kCat, {std::move(pieces), IntArg(dim - parts.begin())}, {id}, layer_});
    return {};
  }

  // Returns the part of head `head` of a value that has heads.
  Result<ValueId> part(ValueId id, int64_t head) {
    const auto known = parts_.find({id, head});
    if (known != parts_.end()) return known->second;
    const auto maker = makers_.find(id);
    if (maker != makers_.end()) {
      FERRY_RETURN_IF_ERROR(emit(*maker->second, head));
    } else {
      parts_[{id, head}] = graph_[id].origin == Value::Origin::kWeight
                               ? FERRY_TRY(weight_part(id, head))
                               : FERRY_TRY(slice(id, head));
    }
    return parts_.at({id, head});
  }

  // Emits the node for `head`. Its results become parts of the results of `node`.
  Status emit(const Node& node, int64_t head) {
    const int64_t count = head_count(layouts_.of(node.outs[0]));
    Node own = node;
    Status status;
    visit_used_values(own, [&](ValueId& id) {
      const HeadParts& parts = layouts_.of(id);
      if (!status || parts.empty()) return;
      Result<ValueId> found = part(id, head * head_count(parts) / count);
      if (found) id = *found;
      if (!found) status = found.pass();
    });
    FERRY_RETURN_IF_ERROR(std::move(status));
    std::vector<Dims> shapes;
    for (ValueId out : node.outs) {
      shapes.push_back(part_shape(graph_[out].shape, layouts_.of(out)));
    }
    if (node.op == Op::kView) own.args[pte::ops::View::kSize] = sizes(shapes[0]);
    if (node.op == Op::kExpand) own.args[pte::ops::Expand::kSize] = sizes(shapes[0]);
    const std::vector<ValueId> outs = FERRY_TRY(append(std::move(own), shapes));
    for (size_t i = 0; i < outs.size(); ++i) parts_[{node.outs[i], head}] = outs[i];
    return {};
  }

  static std::vector<IntArg> sizes(const Dims& shape) {
    std::vector<IntArg> args;
    for (const Dim& dim : shape) args.emplace_back(dim.base);
    return args;
  }

  // Appends a node with fresh results of `shapes`, which name the axes. Inference must agree with
  // them.
  Result<std::vector<ValueId>> append(Node node, const std::vector<Dims>& shapes) {
    const Types types = FERRY_TRY(infer_types(graph_, {}, node));
    for (size_t i = 0; i < node.outs.size(); ++i) {
      if (types[i].shape != shapes[i]) {
        return fail(ErrorCode::kInternal,
                    fmt::format("single-head attention: layer {}: {} makes another shape for one "
                                "head",
                                node.layer, op_name(node.op)));
      }
      Value value;
      value.dtype = types[i].dtype;
      value.shape = shapes[i];
      node.outs[i] = add_value(std::move(value));
    }
    graph_.nodes.push_back(node);
    return node.outs;
  }

  ValueId add_value(Value value) {
    graph_.values.push_back(std::move(value));
    layouts_.parts.emplace_back();
    return {static_cast<int32_t>(graph_.values.size()) - 1};
  }

  // Cuts the part of a head out of an input, which is a cache.
  Result<ValueId> slice(ValueId id, int64_t head) {
    const HeadParts& parts = layouts_.of(id);
    const auto dim = std::ranges::find_if(parts, [](int64_t count) { return count > 1; });
    const Dims shape = part_shape(graph_[id].shape, parts);
    const int64_t width = shape[static_cast<size_t>(dim - parts.begin())].base;
    const Node node{Op::kSlice,
                    {id, IntArg(dim - parts.begin()), IntArg(head * width),
                     IntArg((head + 1) * width), IntArg(1)},
                    {ValueId{}},
                    layer_};
    return FERRY_TRY(append(node, {shape})).front();
  }

  Result<ValueId> weight_part(ValueId id, int64_t head) {
    const HeadParts& parts = layouts_.of(id);
    const int64_t count = head_count(parts);
    Value value = graph_[id];
    if (cut_.try_emplace(value.name, count).first->second != count) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("single-head attention: weight {} has two numbers of heads",
                              quoted(value.name)));
    }
    value.name = head_weight_name(value.name, head);
    value.shape = part_shape(value.shape, parts);
    return add_value(std::move(value));
  }

  Graph& graph_;
  HeadLayouts layouts_;
  CutWeights& cut_;
  int32_t layer_ = -1;
  std::map<ValueId, const Node*> makers_;  // nodes of the values that are made head by head
  std::set<ValueId> kept_, joined_;
  std::map<std::pair<ValueId, int64_t>, ValueId> parts_;
};

// Returns the weight of one of `count` heads, which is a range of the rows of `whole`.
Weight head_weight(const Weight& whole, int64_t head, int64_t count) {
  Weight weight = whole;
  weight.name = head_weight_name(whole.name, head);
  RecipeOutput& output = weight.recipe.output();
  auto rows = std::ranges::find_if(output.shape, [](int64_t size) { return size > 1; });
  *rows /= count;
  int64_t elements = 1;
  for (const int64_t size : output.shape) elements *= size;
  const StridedPiece range = run_piece(0, head * elements, elements);
  weight.recipe.pieces = select(whole.recipe.pieces, std::span(&range, 1));
  return weight;
}

// The parts take the position of their weight, which stays if a node needs all of it.
Result<StateDict> cut_weights(const Model& model, const CutWeights& cut) {
  std::set<std::string_view> used;
  for (const MethodGraph& method : model.methods) {
    for (const Value& value : method.graph.values) {
      if (value.origin == Value::Origin::kWeight) used.insert(value.name);
    }
  }
  StateDict out;
  for (const Weight& weight : model.weights.weights()) {
    const auto found = cut.find(weight.name);
    if (found == cut.end() || used.contains(weight.name)) FERRY_RETURN_IF_ERROR(out.add(weight));
    if (found == cut.end()) continue;
    for (int64_t head = 0; head < found->second; ++head) {
      FERRY_RETURN_IF_ERROR(out.add(head_weight(weight, head, found->second)));
    }
  }
  return out;
}

}  // namespace

std::string head_weight_name(const std::string& whole, int64_t head) {
  const size_t dot = whole.rfind('.');
  if (dot == std::string::npos) return fmt::format("{}.{}", whole, head);
  return fmt::format("{}.{}{}", whole.substr(0, dot), head, whole.substr(dot));
}

Result<Model> split_heads(Model model) {
  CutWeights cut;
  for (MethodGraph& method : model.methods) {
    HeadLayouts layouts = FERRY_TRY(trace_heads(method.graph));
    FERRY_RETURN_IF_ERROR(Splitter(method.graph, std::move(layouts), cut).run());
  }
  FERRY_RETURN_IF_ERROR(check_shared_values(model.methods));
  model.weights = FERRY_TRY(cut_weights(model, cut));
  return model;
}

}  // namespace ferry::graph
