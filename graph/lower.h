// lower() makes a Program (formats/pte) with planned memory of the methods of a bound model, and
// the recipe of its data. It reads no weights.
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

// A constant method has no inputs and one output for each value.
struct MetadataMethod {
  using Value = std::variant<int64_t, bool, double, std::string>;
  std::string name;
  std::vector<Value> values;
};

// The place of a value of the graph in its method.
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
  std::optional<Encoding> encoding = {};  // for u8 and u16
};

// An external tensor that every adapter gives (Value::is_factor).
struct LoweredFactor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};
  Literal contents;  // where no file of an adapter gives others; see FactorSlots::contents
};

// The description of a method, which accompanies its pte::Method.
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
  std::vector<Literal> constants;  // [i] holds the contents of constant i; [0] is unused
  std::vector<Literal> initial;    // [i] holds initial contents i; [0] is unused
  // [i] holds the data to which Delegate::data i refers
  std::vector<std::vector<std::byte>> delegates = {};
  // The names of the external tensors in order of first use: weights, and scales ("w.scales").
  std::vector<std::string> weights;
  // The external tensors that adapters give, in order of first use.
  std::vector<LoweredFactor> factors = {};
  // names of the constants of delegates, in order of first use
  std::vector<std::string> named = {};
  std::vector<LoweredMethod> methods;  // [i] describes program.methods[i]; constant methods follow
  uint64_t state_bytes = 0;            // mutable buffers of all methods (memory 2)
};

// The memory of the outputs of methods.
enum class OutputMemory {
  kPlanned,  // memory 1, as for activations
  // The caller sets the memory before each execution. It requires a runner that sets every output:
  // the outputs of static programs are the next call's inputs.
  kCallers,
};

// Makes one method for each graph, in order, then the constant methods. Weights are pooled by name,
// literals by key, buffers by name. Inputs are unplanned (they share the caller's memory).
// Activations are in memory 1, whose size each method states for itself. Mutable buffers are in
// memory 2, which has the same layout and size in every method that has buffers. kInternal, with
// the names of both methods, if a name has different meanings in two methods.
Result<LoweredProgram> lower(std::span<const MethodGraph> methods,
                             const std::vector<MetadataMethod>& metadata,
                             OutputMemory outputs = OutputMemory::kPlanned);

}  // namespace ferry::graph
