// Matrices in blocks of GGUF files stay as they are. The other matrices are not touched.
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/tensor_source.h"
#include "formats/pte/operator_args.h"
#include "graph/passes/passes.h"

namespace ferry::graph {
namespace {

// The name of the encoding of each matrix that stays in blocks, by the name of the weight.
using Kept = std::map<std::string, std::string, std::less<>>;

// Returns whether `arg` of a node is a matrix of a linear layer or the table of an embedding.
bool reads_matrix(Op op, size_t arg) {
  return (op == Op::kLinear && arg == pte::ops::Linear::kWeight) ||
         (op == Op::kEmbedding && arg == pte::ops::Embedding::kWeight);
}

// Takes the weights out that a node reads otherwise.
void drop_others(const Graph& graph, Kept& kept) {
  const auto drop = [&](ValueId id) {
    if (graph[id].origin == Value::Origin::kWeight) kept.erase(graph[id].name);
  };
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      if (const auto* id = std::get_if<ValueId>(&node.args[i])) {
        if (!reads_matrix(node.op, i)) drop(*id);
      } else if (const auto* list = std::get_if<TensorListArg>(&node.args[i])) {
        for (const ValueId item : list->items) drop(item);
      }
    }
  }
}

// Returns the name of the encoding of the tensors that the weight is made of; empty for others.
std::string_view encoding_of(const Recipe& recipe, const TensorSource& source) {
  if (recipe.pieces.empty()) return {};
  const BlockEncoding* encoding = source.entries()[recipe.pieces[0].tensor].encoding;
  return encoding == nullptr ? std::string_view() : encoding->name;
}

void rewrite(Graph& graph, const Kept& kept, const StateDict& weights) {
  for (Node& node : graph.nodes) {
    if (node.op != Op::kLinear && node.op != Op::kEmbedding) continue;
    const bool linear = node.op == Op::kLinear;
    const auto matrix = std::get<ValueId>(node.args[linear ? size_t{pte::ops::Linear::kWeight}
                                                           : size_t{pte::ops::Embedding::kWeight}]);
    Value& value = graph[matrix];
    const auto found = kept.find(value.name);
    if (value.origin != Value::Origin::kWeight || found == kept.end()) continue;
    const RecipeOutput& blocks = weights.find(value.name)->recipe.output();
    const Dim columns = graph[node.outs[0]].shape.back();
    if (linear) {
      node.op = Op::kBlockLinear;
      node.args = {node.args[pte::ops::Linear::kInput], matrix, found->second};
    } else {
      node.op = Op::kBlockEmbedding;
      node.args = {matrix, node.args[pte::ops::Embedding::kIndices], IntArg(columns.base),
                   found->second};
    }
    value.dtype = blocks.dtype;
    value.shape = {value.shape[0], Dim(blocks.shape[1])};
  }
}

}  // namespace

Result<Model> keep_blocks(Model model, const TensorSource& source, const IsBlockName& supports) {
  Kept kept;
  for (const Weight& weight : model.weights.weights()) {
    const std::string_view encoding = encoding_of(weight.recipe, source);
    Recipe blocks = weight.recipe;
    const bool is_matrix = weight.recipe.output().shape.size() == 2;
    if (!is_matrix || !supports(encoding) || !blocks.take_blocks(source, weight.name)) continue;
    kept.emplace(weight.name, encoding);
  }
  for (const MethodGraph& method : model.methods) drop_others(method.graph, kept);
  for (const auto& [name, encoding] : kept) {
    FERRY_RETURN_IF_ERROR(model.weights.find(name)->recipe.take_blocks(source, name));
  }
  for (MethodGraph& method : model.methods) {
    rewrite(method.graph, kept, model.weights);
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return model;
}

}  // namespace ferry::graph
