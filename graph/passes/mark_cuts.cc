// mark_cuts copies the hidden state between the parts of one program.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "graph/graph.h"
#include "graph/passes/layer_partition.h"
#include "graph/passes/passes.h"

namespace ferry::graph {
namespace {

// Returns the tensors that layers before `bound` make and others read. Values that are made before
// the first layer (rows of RoPE tables, masks) belong to every part.
std::vector<ValueId> crossing(const Graph& graph, int32_t bound) {
  std::set<ValueId> made;
  std::vector<ValueId> crossing;
  for (const Node& node : graph.nodes) {
    for (ValueId id : used_values(node)) {
      if (node.layer < bound || !made.contains(id) || graph[id].kind != Value::Kind::kTensor) {
        continue;
      }
      if (std::ranges::count(crossing, id) == 0) crossing.push_back(id);
    }
    if (node.layer < 0 || node.layer >= bound) continue;
    for (ValueId id : node.outs) {
      if (graph[id].origin == Value::Origin::kNode) made.insert(id);
    }
  }
  return crossing;
}

// Copies `id` after the last node of the layers before `bound`, for all later readers.
void insert_fallback(Graph& graph, ValueId id, int32_t bound) {
  Value copy = graph[id];
  graph.values.push_back(std::move(copy));
  const ValueId out{static_cast<int32_t>(graph.values.size()) - 1};
  const auto behind =
      std::ranges::find_if(graph.nodes, [&](const Node& node) { return node.layer >= bound; });
  for (auto node = behind; node != graph.nodes.end(); ++node) {
    visit_used_values(*node, [&](ValueId& used) {
      if (used == id) used = out;
    });
  }
  graph.nodes.insert(behind, Node{Op::kFallback, {id}, {out}, bound - 1});
}

}  // namespace

Result<Model> mark_cuts(Model model, int32_t count) {
  const std::vector<int32_t> bounds = FERRY_TRY(partition_model(model, count));
  for (MethodGraph& method : model.methods) {
    for (size_t part = 1; part + 1 < bounds.size(); ++part) {
      const std::vector<ValueId> ids = crossing(method.graph, bounds[part]);
      if (ids.size() != 1) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("shards in one file: {} tensors pass from layer {} to {} in "
                                "method {}, where one is supported",
                                ids.size(), bounds[part] - 1, bounds[part], method.name));
      }
      insert_fallback(method.graph, ids.front(), bounds[part]);
    }
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return model;
}

}  // namespace ferry::graph
