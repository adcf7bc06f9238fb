// Executes a graph on terms instead of numbers: the result of a node is its operator applied to the
// terms of its arguments. Two graphs that compute the same have the same terms, whatever their
// numbering, order, or cuts. This code is independent of the code under test.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace ferry::graph {

using Terms = std::map<std::string, std::string>;  // name of an input, output or buffer -> term

struct SymbolicRun {
  Terms outputs, probes;
  Terms state;  // buffers after the run
};

// `inputs` has a term for every input of the graph. The terms of weights, literals and buffers are
// their names. The size of a symbolic dimension is its text.
SymbolicRun run_symbolically(const Graph& graph, const Terms& inputs);

}  // namespace ferry::graph
