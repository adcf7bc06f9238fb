// Matrices in blocks of GGUF files stay as they are. The other matrices are not touched.
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/tensor_source.h"
#include "formats/pte/operator_args.h"
#include "graph/experts.h"
#include "graph/passes/passes.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// The name of the encoding of each matrix that stays in blocks, by the name of the weight.
using Kept = std::map<std::string, std::string, std::less<>>;

// Returns whether `arg` of a node is a matrix of a linear layer or of experts, or the table of an
// embedding.
bool reads_matrix(Op op, size_t arg) {
  return (op == Op::kLinear && arg == pte::ops::Linear::kWeight) ||
         (op == Op::kEmbedding && arg == pte::ops::Embedding::kWeight) ||
         (op == Op::kExperts && ExpertsArgs::is_matrix(arg));
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

// Rewrites the nodes of one method.
class BlockRewriter {
 public:
  BlockRewriter(Graph& graph, const Kept& kept, const StateDict& weights)
      : graph_(graph), kept_(kept), weights_(weights) {}

  void run() {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      if (!written_buffers(graph_, node).empty()) joinable_.clear();
      if (node.op == Op::kLinear) linear(node);
      if (node.op == Op::kEmbedding) embedding(node);
      if (node.op == Op::kExperts) experts(node);
      if (node.op != Op::kBlockLinear || !joined(node)) graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  // Gives the value of a matrix that stays in blocks their dtype and shape, and returns the name of
  // the encoding; nullptr for another matrix.
  const std::string* take(ValueId matrix) {
    Value& value = graph_[matrix];
    const auto found = kept_.find(value.name);
    if (value.origin != Value::Origin::kWeight || found == kept_.end()) return nullptr;
    const RecipeOutput& blocks = weights_.find(value.name)->recipe.output();
    value.dtype = blocks.dtype;
    value.shape.back() = Dim(blocks.shape.back());
    return &found->second;
  }

  void linear(Node& node) {
    const auto matrix = std::get<ValueId>(node.args[pte::ops::Linear::kWeight]);
    const std::string* encoding = take(matrix);
    if (encoding == nullptr) return;
    node.op = Op::kBlockLinear;
    node.args = {node.args[pte::ops::Linear::kInput], matrix, *encoding};
  }

  // Products of one activation become one node. Returns whether the node was added to an earlier
  // one.
  bool joined(const Node& node) {
    using pte::ops::BlockLinear;
    const auto x = std::get<ValueId>(node.args[BlockLinear::kInput]);
    const auto [known, fresh] = joinable_.try_emplace({x, node.layer}, graph_.nodes.size());
    if (fresh) return false;
    Node& first = graph_.nodes[known->second];
    if (first.op == Op::kBlockLinear) {
      first.op = Op::kBlockLinears;
      const auto matrix = std::get<ValueId>(first.args[BlockLinear::kBlocks]);
      first.args[BlockLinear::kBlocks] = TensorListArg{{matrix}};
    }
    auto& matrices = std::get<TensorListArg>(first.args[BlockLinear::kBlocks]).items;
    matrices.push_back(std::get<ValueId>(node.args[BlockLinear::kBlocks]));
    std::get<std::string>(first.args[BlockLinear::kEncoding]) +=
        "," + std::get<std::string>(node.args[BlockLinear::kEncoding]);
    first.outs.push_back(node.outs[0]);
    return true;
  }

  void embedding(Node& node) {
    const auto table = std::get<ValueId>(node.args[pte::ops::Embedding::kWeight]);
    const std::string* encoding = take(table);
    if (encoding == nullptr) return;
    const Dim columns = graph_[node.outs[0]].shape.back();
    node.op = Op::kBlockEmbedding;
    node.args = {table, node.args[pte::ops::Embedding::kIndices], IntArg(columns.base), *encoding};
  }

  // The scratch size of the loop's body changes.
  void experts(Node& node) {
    for (size_t i = 0; ExpertsArgs::is_matrix(ExpertsArgs::kW1 + i); ++i) {
      const auto* matrix = std::get_if<ValueId>(&node.args[ExpertsArgs::kW1 + i]);
      if (matrix == nullptr) continue;
      if (const std::string* encoding = take(*matrix)) node.args[ExpertsArgs::kE1 + i] = *encoding;
    }
    const Result<Types> types = infer_types(graph_, {}, node);
    // otherwise validate() reports the error
    if (types) graph_[node.outs[1]].shape = (*types)[1].shape;
  }

  Graph& graph_;
  const Kept& kept_;
  const StateDict& weights_;
  // The node that further products of an activation join, by activation and layer. A node that
  // writes a buffer ends the joining, because the activation may be a view of the buffer.
  std::map<std::pair<ValueId, int32_t>, size_t> joinable_;  // index into nodes
};

}  // namespace

Result<Model> keep_blocks(Model model, const TensorSource& source, const IsBlockName& supports) {
  Kept kept;
  for (const Weight& weight : model.weights.weights()) {
    const std::string_view encoding = encoding_of(weight.recipe, source);
    Recipe blocks = weight.recipe;
    const size_t rank = weight.recipe.output().shape.size();
    if (rank < 2 || rank > 3 || !supports(encoding) || !blocks.take_blocks(source, weight.name))
      continue;
    kept.emplace(weight.name, encoding);
  }
  for (const MethodGraph& method : model.methods) drop_others(method.graph, kept);
  for (const auto& [name, encoding] : kept) {
    FERRY_RETURN_IF_ERROR(model.weights.find(name)->recipe.take_blocks(source, name));
  }
  for (MethodGraph& method : model.methods) {
    BlockRewriter(method.graph, kept, model.weights).run();
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return model;
}

}  // namespace ferry::graph
