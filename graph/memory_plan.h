// Memory planning assigns memory to the tensors of a method. Activations share one arena by
// lifetime. Mutable buffers are in another arena, which all methods of a program share. This is not
// a public header.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/pte/program.h"
#include "graph/graph.h"
#include "graph/lower.h"

namespace ferry::graph {

struct Lifetime {
  uint64_t bytes = 0;
  int32_t first = 0;  // the node that writes the value
  int32_t last = 0;   // the last node that reads the value, inclusive
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // one per lifetime
  uint64_t arena_bytes = 0;       // a multiple of the alignment
  uint64_t lower_bound = 0;       // largest sum of simultaneously live bytes
};

// Places values with known lifetimes so that values that live at the same time never overlap. The
// result is deterministic, and every offset is a multiple of `alignment`.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, uint64_t alignment = 16);

// One place for each buffer name, for all methods that have the buffer.
struct StatePlan {
  std::map<std::string, uint64_t> offsets;  // in kStateMemory
  uint64_t bytes = 0;
};

struct StoragePlan {
  // The place of each value; none for inputs, weights, literals, integers, and views of those.
  std::vector<std::optional<pte::Allocation>> places;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;
};

inline constexpr uint32_t kActivationMemory = 1;
inline constexpr uint32_t kStateMemory = 2;

// Buffers are placed in order of first appearance. The methods must agree on their buffers
// (check_shared_values).
StatePlan plan_state(std::span<const MethodGraph> methods);

// Symbolic sizes count at their upper bounds. Outputs live to the end; those in the memory of the
// caller have no place. `graph` must be valid and have only the buffers of `state`.
StoragePlan plan_storage(const Graph& graph, const StatePlan& state, OutputMemory outputs);

}  // namespace ferry::graph
