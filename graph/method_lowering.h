// lower_method: one graph becomes one method of a program. Private to graph/.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/lower.h"
#include "graph/storage_plan.h"

namespace ferry::graph {

// Literals that are stored in a program, each content once. Index 0 is the placeholder.
class DataTable {
 public:
  uint32_t add(const Literal& literal);

  std::vector<Literal> literals = {Literal{}};
  std::vector<uint64_t> sizes = {0};

 private:
  std::map<std::string, uint32_t> index_;  // by key
};

// Names of weights, each once, in the order of first use.
class WeightList {
 public:
  void add(const std::string& name);
  std::vector<std::string> names;

 private:
  std::set<std::string> known_;
};

// What the methods of one program have in common.
struct ProgramPools {
  StatePlan state;
  OutputMemory outputs = OutputMemory::kPlanned;
  DataTable constants, initial;
  WeightList weights;
  WeightList named;  // constants of delegates
  std::vector<std::vector<std::byte>> delegates;
};

struct MethodAndDescription {
  pte::Method method;
  LoweredMethod description;
};

// Adds to `pools` what the method uses. Its graph is valid and agrees with the program's other
// methods (shared_values.h).
Result<MethodAndDescription> lower_method(const MethodGraph& method, ProgramPools& pools);

}  // namespace ferry::graph
