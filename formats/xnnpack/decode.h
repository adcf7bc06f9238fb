// From a verified FlatBuffer to a Graph. Not a public header.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

namespace wire {
struct Graph;
}

// Checks only what the Graph type cannot hold: absent fields, old forms, counts that contradict
// each other, and kinds of nodes that we do not read. Offsets of constants are still relative to
// the region of constants.
Result<Graph> decode_graph(const wire::Graph& root, size_t flat_bytes, const std::string& name);

}  // namespace ferry::xnnpack
