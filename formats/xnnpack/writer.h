// Writes blobs of the XNNPACK backend as the official exporter lays them out (blob_layout.h).
#pragma once

#include <cstddef>
#include <vector>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// Equal graphs give equal bytes. kInternal if the reader would refuse the graph, kUnsupported if a
// constant has no key.
Result<std::vector<std::byte>> write_blob(const Graph& graph);

}  // namespace ferry::xnnpack
