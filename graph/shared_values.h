// check_shared_values: whether the methods of one program agree on what they share by name.
// Private to graph/.
#pragma once

#include <span>

#include "graph/graph.h"

namespace ferry::graph {

// Method names are unique. A name means the same in every method: equal dtype and shape of weights,
// also equal initial contents of buffers, equal sizes of literals with one key. kInternal
// otherwise; the message names both methods.
Status check_shared_values(std::span<const MethodGraph> methods);

}  // namespace ferry::graph
