#include "graph/node_values.h"

#include "graph/shape_inference.h"

namespace ferry::graph {

std::vector<ValueId> written_buffers(const Graph& graph, const Node& node) {
  std::vector<ValueId> ids;
  const pte::OpSchema* schema = op_schema(node.op);
  for (size_t i = 0; i < schema->args.size() && i < node.args.size(); ++i) {
    const auto* id = std::get_if<ValueId>(&node.args[i]);
    if (schema->args[i].mutated && id != nullptr) ids.push_back(*id);
  }
  for (ValueId out : node.outs) {
    const bool known = !ids.empty() && ids.front() == out;  // copy_ names its buffer twice
    if (!known && graph[out].origin == Value::Origin::kBuffer) ids.push_back(out);
  }
  return ids;
}

}  // namespace ferry::graph
