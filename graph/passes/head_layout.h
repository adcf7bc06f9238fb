// trace_heads finds which values of a graph exist once per attention head, and where the heads lie
// in their shapes. It follows the axes that are named Axis::kHead, never sizes. This is not a
// public header.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/result.h"
#include "graph/graph.h"

namespace ferry::graph {

// Holds, for each dimension, the number of equal consecutive blocks that belong to different heads,
// or 1 if a dimension has nothing to do with heads. If two dimensions have blocks, the first counts
// groups and the second the heads of a group. An empty vector means that the value is not made per
// head.
using HeadParts = std::vector<int64_t>;

int64_t head_count(const HeadParts& parts);
// Returns the shape of one head's part.
Dims part_shape(const Dims& shape, const HeadParts& parts);

struct HeadLayouts {
  std::vector<HeadParts> parts;  // by value
  std::set<int32_t> layers;      // decoder layers with a softmax over the scores of several heads

  // Returns whether all results of a node are made head by head, so that it computes nothing across
  // heads.
  bool is_per_head(const Node& node) const;
  const HeadParts& of(ValueId id) const { return parts[static_cast<size_t>(id.index)]; }
};

// Values have heads in inputs that name them, from a view that names them on, and back to the
// linear node that makes the view's source. kUnsupported, with layer and operator, if a layer with
// a softmax over heads has an operator that cannot be divided.
Result<HeadLayouts> trace_heads(const Graph& graph);

}  // namespace ferry::graph
