// result_shape: the shape of a node's result. Not a public header.
#pragma once

#include <span>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "kernels/tensor.h"

namespace ferry::runner {

// XNNPACK's limit of dimensions.
inline constexpr size_t kMaxNodeRank = 6;
inline constexpr size_t kMaxNodeInputs = 5;

// `inputs` are the shapes of Node::inputs; of kFullyConnected those of input and filter. The node's
// lists have been checked. kBadInput where the shapes do not fit the node or each other.
Result<kernels::Dims> result_shape(const xnnpack::Node& node,
                                   std::span<const kernels::Dims* const> inputs);

}  // namespace ferry::runner
