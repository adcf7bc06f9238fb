// Validates the nodes of a graph whose values have been validated. Private to formats/xnnpack.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "formats/xnnpack/value_table.h"

namespace ferry::xnnpack {

// Checks arity, order, the only source of each value, datatypes, shapes, numbers and flags. `name`
// begins the messages.
Status check_nodes(const Graph& graph, const ValueTable& values, const std::string& name);

}  // namespace ferry::xnnpack
