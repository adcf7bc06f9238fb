// lower: the methods of a bound model become a Program (formats/pte) with planned memory, plus the
// recipe of its data. No bytes of weights are touched.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "formats/pte/program.h"
#include "formats/pte/writer.h"
#include "graph/graph.h"

namespace ferry::graph {

// A constant method: no inputs, one output for each value.
struct MetadataMethod {
  using Value = std::variant<int64_t, bool, double, std::string>;
  std::string name;
  std::vector<Value> values;
};

// Where a value of the graph is in its method.
struct LoweredProbe {
  std::string name;
  int32_t value = 0;  // index into Method::values
};

struct LoweredBuffer {
  std::string name;
  int32_t value = 0;
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;
  uint32_t initial = 0;  // index into initial data, 0 = none
};

struct LoweredPort {  // an input or output of the method
  std::string name;
  DType dtype;
  Shape shape;                            // upper bounds
  std::optional<Encoding> encoding = {};  // of u8 and u16
};

// The description of a method beside its pte::Method.
struct LoweredMethod {
  std::string name;
  std::vector<LoweredPort> inputs, outputs;
  std::vector<LoweredProbe> probes;
  std::vector<LoweredBuffer> buffers;
  uint64_t activation_bytes = 0;        // planned arena of activations (memory 1)
  uint64_t activation_lower_bound = 0;  // largest sum of simultaneously live activations
};

struct LoweredProgram {
  pte::Program program;
  pte::DataSizes sizes;
  std::vector<Literal> constants;  // [i] is the contents of constant i; [0] unused
  std::vector<Literal> initial;    // the same for initial contents
  std::vector<std::vector<std::byte>> delegates = {};  // [i] is what Delegate::data i refers to
  // Names of the external tensors, in first-use order: of weights, and of scales ("w.scales").
  std::vector<std::string> weights;
  std::vector<std::string> named = {};  // the same of the constants of delegates
  std::vector<LoweredMethod> methods;   // [i] describes program.methods[i]; constant methods follow
  uint64_t state_bytes = 0;             // mutable buffers of all methods (memory 2)
};

// Where the outputs of methods are.
enum class OutputMemory {
  kPlanned,  // in memory 1, as activations
  // Where the caller says before each execution. Runners that set every output need this: those of
  // static programs give the next call's inputs.
  kCallers,
};

// One method for each graph, in order, then the constant methods. Weights are pooled by name,
// literals by key, buffers by name. Inputs are unplanned (they share the caller's memory).
// Activations are in memory 1, of which each method states the size that it needs
// itself. Mutable buffers are in memory 2, which has the same layout and size in every method that
// has buffers. kInternal, with the names of both methods, where a name means different things in
// two of them.
Result<LoweredProgram> lower(std::span<const MethodGraph> methods,
                             const std::vector<MetadataMethod>& metadata,
                             OutputMemory outputs = OutputMemory::kPlanned);

}  // namespace ferry::graph
