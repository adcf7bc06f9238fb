// A compiled delegate: its values and steps. compile.cc makes it, run.cc executes it. Not a public
// header.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/call.h"
#include "kernels/quantized_linear.h"
#include "runner/delegate/delegate.h"
#include "runner/delegate/node_rules.h"

namespace ferry::runner {

// One value of the graph at run time.
struct PlannedValue {
  uint32_t id = 0;                    // in the graph
  kernels::Tensor* tensor = nullptr;  // an argument of the call, or one of Delegate::Plan::own
  bool is_scratch = false;            // lies in scratch memory, at `offset`
  uint64_t offset = 0;
  size_t last = 0;           // step that uses it last
  kernels::Dims shape = {};  // for the input shapes that were seen last
};

// Products of the rows of one value with several matrices.
struct LinearStep {
  enum class Kind : uint8_t { kDynamic, kWeightOnly, kF32 };
  struct Product {
    size_t node = 0;
    size_t out = 0;  // index into Plan::values
    std::optional<xnnpack::MinMax> range = {};
  };
  Kind kind = Kind::kF32;
  bool rounds_rows = false;           // kWeightOnly
  const std::byte* matrix = nullptr;  // kF32: [n, columns]
  int64_t columns = 0;
  std::vector<Product> products = {};
  std::vector<kernels::LinearTask> tasks = {};  // of the products
};

struct PlanStep {
  size_t node = 0;
  std::vector<size_t> reads = {}, writes = {};  // indices into Plan::values
  // Without a LinearStep: a kernel.
  kernels::KernelFn run = nullptr;
  int variant = 0;
  std::vector<kernels::Value*> args = {};
  std::optional<LinearStep> linear = {};
};

// The result of a node, for the propagation of shapes: in the order of the graph.
struct ShapeRule {
  size_t node = 0;
  std::vector<size_t> inputs = {};
  size_t out = 0;
};

struct Delegate::Plan {
  explicit Plan(DelegateMemory& the_memory) : memory(the_memory) {}

  DelegateMemory& memory;
  std::vector<xnnpack::Node> nodes;
  std::vector<PlannedValue> values;
  std::deque<kernels::Tensor> own;                // of values that are no arguments
  std::deque<kernels::Value> made;                // arguments of kernels
  std::vector<kernels::Tensor*> inputs, outputs;  // arguments of the call
  std::vector<size_t> input_values;  // indices into `values`, whose shapes decide the others
  std::vector<ShapeRule> rules;
  std::vector<PlanStep> steps;

  uint64_t value_bytes = 0;         // of scratch memory for values
  uint64_t linear_bytes = 0;        // after them, for the products of one step
  const std::byte* base = nullptr;  // where scratch was when the tensors were bound
  bool seen = false;                // shapes are those of `input_values`

  // "node 3 (Add): " before the message.
  Error at_node(size_t node, Error error) const;
  // Shapes of all values, from those of the inputs. Errors name the node.
  Status infer_shapes();
  // Places the values in scratch memory, as they are now or as large as ever before.
  Status place(MemoryBudget& budget);
};

}  // namespace ferry::runner
