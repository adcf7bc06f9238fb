// Memory planning: places values with known lifetimes in one arena so that values that live at the
// same time never overlap.
#pragma once

#include <cstdint>
#include <vector>

namespace ferry::graph {

struct Lifetime {
  uint64_t bytes = 0;
  int32_t first = 0;  // node that writes it
  int32_t last = 0;   // last node that reads it, inclusive
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // one per lifetime
  uint64_t arena_bytes = 0;       // a multiple of the alignment
  uint64_t lower_bound = 0;       // largest sum of simultaneously live bytes
};

// Deterministic; every offset is a multiple of `alignment`.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, uint64_t alignment = 16);

}  // namespace ferry::graph
