// The values among the arguments of a node, wherever they are: tensors, lists, symbolic integers.
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "graph/graph.h"

namespace ferry::graph {

// Calls visit(id) with every value of the arguments in order, as a reference that may be assigned
// if `node` is not const.
template <class NodeType, class Visit>
requires std::is_same_v<std::remove_const_t<NodeType>, Node>
void visit_used_values(NodeType& node, const Visit& visit) {
  const auto visit_int = [&](auto& arg) {
    if (arg.value.valid()) visit(arg.value);
  };
  for (auto& arg : node.args) {
    if (auto* id = std::get_if<ValueId>(&arg)) visit(*id);
    if (auto* integer = std::get_if<IntArg>(&arg)) visit_int(*integer);
    if (auto* list = std::get_if<TensorListArg>(&arg)) {
      for (auto& id : list->items) visit(id);
    }
    if (auto* list = std::get_if<std::vector<IntArg>>(&arg)) {
      for (auto& item : *list) visit_int(item);
    }
  }
}

inline std::vector<ValueId> used_values(const Node& node) {
  std::vector<ValueId> ids;
  visit_used_values(node, [&](ValueId id) { ids.push_back(id); });
  return ids;
}

// The buffers that `node` changes: outs, and arguments that its operator writes.
std::vector<ValueId> written_buffers(const Graph& graph, const Node& node);

}  // namespace ferry::graph
