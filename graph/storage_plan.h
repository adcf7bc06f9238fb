// Where the tensors of a graph live: activations in one arena by lifetime, buffers in another.
// Not a public header.
#pragma once

#include <optional>
#include <vector>

#include "formats/pte/program.h"
#include "graph/graph.h"

namespace ferry::graph {

struct StoragePlan {
  // Of each value; none for inputs, weights, literals, integers, and views of those.
  std::vector<std::optional<pte::Allocation>> places;
  uint64_t activation_bytes = 0, activation_lower_bound = 0, state_bytes = 0;
};

inline constexpr uint32_t kActivationMemory = 1;
inline constexpr uint32_t kStateMemory = 2;

// Symbolic sizes count at their upper bounds. Outputs live to the end. `graph` is valid.
StoragePlan plan_storage(const Graph& graph);

}  // namespace ferry::graph
