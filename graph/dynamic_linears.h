// Products of one activation with quantised matrices, executed by the XNNPACK delegate of the
// official runtime: the rows of the activation are quantised to 8 bits at run time. One node is one
// DelegateCall.
//
//   x [...,K] f32, codes of n matrices [N,K] (i4 or i8), their scales -> n results [...,N] f32
//   scales: bf16 [N,K/group] of i4, groups of a multiple of 32 elements; f32 [N] of i8
//
// The matrices are named data of the program: their names are the keys in the blob.
#pragma once

#include "formats/pte/op_schema.h"
#include "formats/xnnpack/graph.h"
#include "graph/graph.h"

namespace ferry::graph {

// Arguments of the node.
enum class DynamicLinearsArg : size_t { kX, kCodes, kScales };

// Its argument list, in the manner of the operators of the runtime. It has as many outs as
// matrices.
const pte::OpSchema& dynamic_linears_schema();

// The graph that the delegate executes. Arguments of the call: x, then the results.
xnnpack::Graph delegate_graph(const Graph& graph, const Node& node);

}  // namespace ferry::graph
