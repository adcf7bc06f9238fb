// The graph types that blocks and families are written with, by their short names.
#pragma once

#include <vector>

#include "graph/builder.h"

namespace ferry::converters {

using graph::Dim;
using graph::Dims;
using graph::GraphBuilder;
using graph::ValueId;
// The methods of one component, in the order in which they are lowered.
using Methods = std::vector<graph::MethodGraph>;

}  // namespace ferry::converters
