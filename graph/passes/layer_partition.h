// Where to cut a row of layers. Not a public header.
#pragma once

#include <cstdint>
#include <vector>

namespace ferry::graph {

// First layer of each of `count` consecutive parts of at least one layer, such that the largest sum
// of costs is as small as it can be and, of those, the parts are as even as the search finds; one
// more entry holds the number of layers. 1 <= count <= costs.size().
std::vector<int32_t> partition_layers(const std::vector<uint64_t>& costs, int32_t count);

}  // namespace ferry::graph
