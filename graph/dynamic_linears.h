// Products of one activation with quantised matrices, executed by the XNNPACK delegate of the
// official runtime. The rows of the activation are quantised to 8 bits at run time. One node is one
// DelegateCall.
//
//   x [...,K] f32, codes of n matrices [N,K] (i4 or i8), their scales -> n results [...,N] f32
//   scales: bf16 [N,K/group] for i4, groups of a multiple of 32 elements; f32 [N] for i8
//
// The matrices are named data of the program. Their names are the keys in the delegate's blob.
#pragma once

#include "formats/pte/op_schema.h"
#include "formats/xnnpack/graph.h"
#include "graph/graph.h"

namespace ferry::graph {

// The arguments of the node.
struct DynamicLinearsArgs {
  enum Arg : size_t { kX, kCodes, kScales };
};

// Returns the argument list of the node in the form of an operator of the runtime. The node has as
// many outs as matrices.
const pte::OpSchema& dynamic_linears_schema();

// Returns the graph that the delegate executes. The arguments of the call are x, then the results.
xnnpack::Graph delegate_graph(const Graph& graph, const Node& node);

}  // namespace ferry::graph
