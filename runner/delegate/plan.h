// A compiled delegate: its values and steps. compile.cc makes it, run.cc executes it. This is not a
// public header.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "kernels/kernel_table.h"
#include "kernels/quantized_linear.h"
#include "runner/delegate/delegate.h"
#include "runner/delegate/node_rules.h"
#include "runner/delegate/reordered.h"

namespace ferry::runner {

// One value of the graph at run time.
struct PlannedValue {
  uint32_t id = 0;  // id of the value in the graph
  // An argument of the call, one of Delegate::Plan::own, or one that stands for an argument.
  kernels::Tensor* tensor = nullptr;
  bool is_scratch = false;  // whether it lies in scratch memory, at `offset`
  uint64_t offset = 0;
  size_t last = 0;           // the last step that uses the value
  kernels::Dims shape = {};  // for the last shapes of the inputs
};

// The matrix of a FullyConnected.
struct Filter {
  int64_t columns = 0;
  const std::byte* f32 = nullptr;  // [rows, columns]; null if `coded` holds the matrix
  kernels::CodedMatrix coded = {};
};

// `constants` are the bytes of Graph::constants. kUnsupported for a value that is no constant or
// has another datatype than f32, qbint4, qcint8, qcint4; kBadInput for shapes and sizes that do not
// fit each other.
Result<Filter> read_filter(const xnnpack::Value& value,
                           std::span<const std::span<const std::byte>> constants);

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
  std::vector<kernels::LinearTask> tasks = {};  // the products
};

struct PlanStep {
  size_t node = 0;
  std::vector<size_t> reads = {}, writes = {};  // indices into Plan::values
  // The kernel of a step without a LinearStep.
  kernels::KernelFn run = nullptr;
  int variant = 0;
  std::vector<kernels::Value*> args = {};
  std::optional<LinearStep> linear = {};
};

// The result of a node, for the propagation of shapes. Rules have the order of the graph.
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
  std::deque<kernels::Tensor> own;                // tensors of values that are no arguments
  std::deque<std::vector<float>> widened;         // constants in other types than f32
  std::deque<kernels::Value> made;                // arguments of kernels
  std::vector<kernels::Tensor*> inputs, outputs;  // arguments of the call
  ReorderedArguments reordered;
  // Values that stand for outputs in another order, and those whose shapes they have.
  struct ReorderedOutput {
    size_t value, shape;
  };
  std::vector<ReorderedOutput> reordered_outputs;
  std::vector<size_t> input_values;  // indices into `values`; their shapes decide all others
  std::vector<ShapeRule> rules;
  std::vector<PlanStep> steps;

  uint64_t value_bytes = 0;         // scratch memory for values
  uint64_t linear_bytes = 0;        // scratch memory after them, for the products of one step
  const std::byte* base = nullptr;  // address of the scratch memory when the tensors were bound
  bool seen = false;                // whether the shapes are those of `input_values`

  // Puts "node 3 (Add): " before the message.
  Error at_node(size_t node, Error error) const;
  // Computes the shapes of all values from those of the inputs. Errors name the node.
  Status infer_shapes();
  // Places the values in scratch memory, with their current shapes or the largest so far.
  Status place(MemoryBudget& budget);
};

}  // namespace ferry::runner
