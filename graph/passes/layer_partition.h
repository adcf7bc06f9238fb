// Chooses where to cut a sequence of layers. This is not a public header.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "graph/graph.h"

namespace ferry::graph {

// Returns the first layer of each of `count` consecutive parts of at least one layer, and as a last
// entry the number of layers. The largest sum of costs is as small as possible and, among such
// partitions, the parts are as even as the search finds. Requires 1 <= count <= costs.size().
std::vector<int32_t> partition_layers(const std::vector<uint64_t>& costs, int32_t count);

// Partitions the layers of a model, balanced by weight bytes. All methods are cut at the same
// layers. kUsage if count < 1 or count > number of layers.
Result<std::vector<int32_t>> partition_model(const Model& model, int32_t count);

}  // namespace ferry::graph
