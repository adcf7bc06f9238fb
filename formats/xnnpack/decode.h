// Converts a verified FlatBuffer to a Graph. Private to formats/xnnpack.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

namespace wire {
struct Graph;
}

// Checks only what the Graph type cannot represent: absent fields, old forms, counts that
// contradict each other, and kinds of nodes that are not supported. The offsets of constants are
// still relative to the region of constants.
Result<Graph> decode_graph(const wire::Graph& root, size_t flat_bytes, const std::string& name);

}  // namespace ferry::xnnpack
