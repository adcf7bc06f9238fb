// trace_heads: which values of a graph exist once per attention head, and where the heads lie in
// their shapes. It follows the axes that are named Axis::kHead, never sizes. Not a public header.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/result.h"
#include "graph/graph.h"

namespace ferry::graph {

// For each dimension the number of equal blocks, one after the other, that belong to different
// heads; 1 where a dimension has nothing to do with heads. Of two such dimensions the first one
// counts groups and the second one the heads of a group. Empty: the value is not made per head.
using HeadParts = std::vector<int64_t>;

int64_t head_count(const HeadParts& parts);
// The shape of one head's part.
Dims part_shape(const Dims& shape, const HeadParts& parts);

struct HeadLayouts {
  std::vector<HeadParts> parts;  // by value
  std::set<int32_t> layers;      // decoder layers whose softmax is over the scores of several heads

  // Whether all results of a node are made head by head: it then computes nothing across heads.
  bool is_per_head(const Node& node) const;
  const HeadParts& of(ValueId id) const { return parts[static_cast<size_t>(id.index)]; }
};

// Values have heads where a view names them and from there on, back to the linear node that makes
// what is viewed, and in inputs that name them. kUnsupported, with layer and operator, where a
// layer with a softmax over heads has an operator that cannot be divided.
Result<HeadLayouts> trace_heads(const Graph& graph);

}  // namespace ferry::graph
