// Where to cut a row of layers. Not a public header.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "graph/graph.h"

namespace ferry::graph {

// First layer of each of `count` consecutive parts of at least one layer, such that the largest sum
// of costs is as small as it can be and, of those, the parts are as even as the search finds; one
// more entry holds the number of layers. 1 <= count <= costs.size().
std::vector<int32_t> partition_layers(const std::vector<uint64_t>& costs, int32_t count);

// The same for the layers of a model, balanced by weight bytes. All methods are cut at the same
// layers. kUsage if count < 1 or count > number of layers.
Result<std::vector<int32_t>> partition_model(const Model& model, int32_t count);

}  // namespace ferry::graph
