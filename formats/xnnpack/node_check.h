// Validation of the nodes of a graph whose values have passed. Not a public header.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "formats/xnnpack/value_table.h"

namespace ferry::xnnpack {

// Arity, order, one source for each value, datatypes, shapes, numbers, flags. `name` begins the
// messages.
Status check_nodes(const Graph& graph, const ValueTable& values, const std::string& name);

}  // namespace ferry::xnnpack
