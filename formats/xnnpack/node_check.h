// Validates the nodes of a graph whose values have been validated. Private to formats/xnnpack.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// The values of a graph by id.
class ValueTable {
 public:
  explicit ValueTable(const Graph& graph) {
    for (size_t i = 0; i < graph.values.size(); ++i) index_.emplace(graph.values[i].id, i);
  }
  // Returns an index into Graph::values, or SIZE_MAX for an unknown id.
  size_t find(uint32_t id) const {
    const auto found = index_.find(id);
    return found == index_.end() ? SIZE_MAX : found->second;
  }
  bool ids_are_unique(const Graph& graph) const { return index_.size() == graph.values.size(); }

 private:
  std::unordered_map<uint32_t, size_t> index_;
};

// Checks arity, order, the only source of each value, datatypes, shapes, numbers and flags. `name`
// begins the messages.
Status check_nodes(const Graph& graph, const ValueTable& values, const std::string& name);

}  // namespace ferry::xnnpack
