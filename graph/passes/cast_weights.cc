// cast_weights stores matrices in their dtype and everything else in f32.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>

#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/experts.h"
#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "graph/recipe.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// Returns the index of the matrix among the arguments of a node that is cast.
std::optional<size_t> matrix_arg(Op op) {
  if (op == Op::kLinear) return pte::ops::Linear::kWeight;
  if (op == Op::kEmbedding) return pte::ops::Embedding::kWeight;
  return std::nullopt;
}

// Returns whether an argument is a matrix. Experts have three, and cast their own activations.
bool is_matrix_arg(Op op, size_t arg) {
  return op == Op::kExperts ? ExpertsArgs::is_matrix(arg) : matrix_arg(op) == arg;
}

// Finds, by name, the weights that every method uses only as matrices of linear, embedding and
// expert nodes.
class MatrixFinder {
 public:
  explicit MatrixFinder(const std::vector<MethodGraph>& methods) {
    for (const MethodGraph& method : methods) {
      for (const Node& node : method.graph.nodes) add(method.graph, node);
    }
    for (const std::string& name : others_) matrices_.erase(name);
  }
  std::set<std::string> take() { return std::move(matrices_); }

 private:
  void add(const Graph& graph, const Node& node) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      if (const auto* id = std::get_if<ValueId>(&node.args[i])) {
        add(graph[*id], is_matrix_arg(node.op, i));
      } else if (const auto* list = std::get_if<TensorListArg>(&node.args[i])) {
        for (ValueId item : list->items) add(graph[item], false);
      }
    }
  }
  void add(const Value& value, bool is_matrix) {
    if (value.origin != Value::Origin::kWeight) return;
    (is_matrix && !value.keep_f32 ? matrices_ : others_).insert(value.name);
  }

  std::set<std::string> matrices_, others_;
};

DType target_of(WeightDType dtype, const Recipe& recipe) {
  switch (dtype) {
    case WeightDType::kKeep:
      return kept_dtype(recipe);
    case WeightDType::kF16:
      return DType::kF16;
    case WeightDType::kBF16:
      return DType::kBF16;
    case WeightDType::kF32:
      break;
  }
  return DType::kF32;
}

// The codes and scales of a quantised matrix keep their stored dtypes.
bool is_coded(const StateDict& weights, const std::string& name) {
  const auto found = weights.find_output(name);
  return found.weight != nullptr && found.weight->recipe.is_coded();
}

// Gives every weight, its values and its recipe the stored dtype.
Status settle_dtypes(Model& model, WeightDType dtype) {
  const std::set<std::string> matrices = MatrixFinder(model.methods).take();
  for (MethodGraph& method : model.methods) {
    for (Value& value : method.graph.values) {
      if (value.origin != Value::Origin::kWeight || value.is_factor) continue;
      if (is_coded(model.weights, value.name)) continue;
      Weight* weight = model.weights.find(value.name);
      if (weight == nullptr) {
        return fail(ErrorCode::kInternal,
                    fmt::format("weight {} is not bound", quoted(value.name)));
      }
      if (!is_castable(weight->recipe.source_dtype)) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("weight {} is {}, expected f32, f16 or bf16", quoted(value.name),
                                dtype_name(weight->recipe.source_dtype)));
      }
      value.dtype = matrices.contains(value.name) ? target_of(dtype, weight->recipe) : DType::kF32;
      weight->recipe.cast(value.dtype);
    }
  }
  return {};
}

// Puts casts around the nodes whose matrix is not f32.
class Caster {
 public:
  explicit Caster(Graph& graph) : graph_(graph) {}

  void run() {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      const std::optional<size_t> matrix = matrix_arg(node.op);
      const DType dtype = matrix ? graph_[matrix_of(node, *matrix)].dtype : DType::kF32;
      if (dtype != DType::kF32) {
        cast_node(std::move(node), dtype);
        continue;
      }
      note_view(node);
      if (node.op == Op::kExperts) resize_scratch(node);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  static ValueId matrix_of(const Node& node, size_t arg) {
    return std::get<ValueId>(node.args[arg]);
  }

  ValueId add_value(DType dtype, Dims shape) {
    Value value;
    value.dtype = dtype;
    value.shape = std::move(shape);
    graph_.values.push_back(std::move(value));
    return {static_cast<int32_t>(graph_.values.size()) - 1};
  }

  void add_cast(ValueId from, ValueId to, int32_t layer) {
    graph_.nodes.push_back(
        {Op::kToCopy, {from, false, std::monostate{}, graph_[to].dtype}, {to}, layer});
  }

  // The scratch size of experts depends on the dtype of their matrices.
  void resize_scratch(const Node& node) {
    const Result<Types> types = infer_types(graph_, {}, node);
    // otherwise validate() reports the error
    if (types) graph_[node.outs[1]].shape = (*types)[1].shape;
  }

  // The result keeps its value, so that probes, outputs and readers stay unchanged.
  void cast_node(Node node, DType dtype) {
    if (node.op == Op::kLinear) {
      auto& activation = std::get<ValueId>(node.args[pte::ops::Linear::kInput]);
      activation = cast_activation(activation, dtype, node.layer);
    }
    const ValueId result = node.outs[0];
    const int32_t layer = node.layer;
    node.outs[0] = add_value(dtype, graph_[result].shape);
    const ValueId narrow = node.outs[0];
    graph_.nodes.push_back(std::move(node));
    add_cast(narrow, result, layer);
  }

  ValueId cast_activation(ValueId from, DType dtype, int32_t layer) {
    if (graph_[from].dtype == dtype) return from;
    const auto known = casts_.find({from, dtype});
    if (known != casts_.end()) return known->second;
    const ValueId to = add_value(dtype, graph_[from].shape);
    add_cast(from, to, layer);
    if (!is_state(from)) casts_[{from, dtype}] = to;
    return to;
  }

  // The contents of a buffer may change between two uses.
  bool is_state(ValueId id) const {
    return graph_[id].origin == Value::Origin::kBuffer || state_views_.contains(id);
  }

  void note_view(const Node& node) {
    if (node.op == Op::kView && is_state(std::get<ValueId>(node.args[pte::ops::View::kSelf]))) {
      state_views_.insert(node.outs[0]);
    }
  }

  Graph& graph_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
  std::set<ValueId> state_views_;
};

}  // namespace

Result<Model> cast_weights(Model model, WeightDType dtype) {
  FERRY_RETURN_IF_ERROR(settle_dtypes(model, dtype));
  for (MethodGraph& method : model.methods) {
    Caster(method.graph).run();
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return model;
}

}  // namespace ferry::graph
