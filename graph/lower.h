// Lowering: a bound model becomes a Program (formats/pte) with planned memory, plus what its data
// is made of. No bytes of weights are touched.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "formats/pte/program.h"
#include "formats/pte/writer.h"
#include "graph/graph.h"

namespace ferry::graph {

// A constant method: no inputs, one value (or several Int outputs for a list).
struct MetadataMethod {
  std::string name;
  std::variant<int64_t, bool, std::vector<int64_t>> value;
};

// Where a value of the graph ended up in the program.
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
  Shape shape;  // upper bounds
};

struct LoweredProgram {
  pte::Program program;
  pte::DataSizes sizes;
  std::vector<Literal> constants;    // [i] is the contents of constant i; [0] unused
  std::vector<Literal> initial;      // the same for initial contents
  std::vector<std::string> weights;  // names of the external tensors, in first-use order
  std::vector<LoweredPort> inputs, outputs;
  std::vector<LoweredProbe> probes;
  std::vector<LoweredBuffer> buffers;
  uint64_t activation_bytes = 0;        // planned arena of activations (memory 1)
  uint64_t activation_lower_bound = 0;  // largest sum of simultaneously live activations
  uint64_t state_bytes = 0;             // mutable buffers (memory 2)
};

// Method `forward` plus the metadata methods. Inputs are unplanned (they share the caller's
// memory); outputs are planned. Activations live in memory 1, mutable buffers in memory 2.
Result<LoweredProgram> lower(const Model& model, const std::vector<MetadataMethod>& metadata);

}  // namespace ferry::graph
