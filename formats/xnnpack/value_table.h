// The values of a graph by id. Private to formats/xnnpack.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

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

}  // namespace ferry::xnnpack
