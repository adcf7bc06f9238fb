// plan_storage: where the tensors of a method live. Activations are in one arena, by lifetime;
// mutable buffers are in another one, which all methods of a program share. Private to graph/.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/pte/program.h"
#include "graph/graph.h"
#include "graph/lower.h"

namespace ferry::graph {

// One place for each buffer name, in whatever methods it is.
struct StatePlan {
  std::map<std::string, uint64_t> offsets;  // in kStateMemory
  uint64_t bytes = 0;
};

struct StoragePlan {
  // Of each value; none for inputs, weights, literals, integers, and views of those.
  std::vector<std::optional<pte::Allocation>> places;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;
};

inline constexpr uint32_t kActivationMemory = 1;
inline constexpr uint32_t kStateMemory = 2;

// In order of first appearance. The methods agree on their buffers (shared_values.h).
StatePlan plan_state(std::span<const MethodGraph> methods);

// Symbolic sizes count at their upper bounds. Outputs live to the end; those in the memory of the
// caller have no place. `graph` is valid and has no
// buffers other than those of `state`.
StoragePlan plan_storage(const Graph& graph, const StatePlan& state, OutputMemory outputs);

}  // namespace ferry::graph
