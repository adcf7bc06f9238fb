// A loaded method: its values, memory and instructions. method_load.cc makes it, method_run.cc
// executes it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"
#include "runner/delegate/delegate.h"
#include "runner/memory.h"
#include "runner/method.h"

namespace ferry::runner {

// One instruction, with everything looked up.
struct Step {
  enum class Kind : uint8_t { kKernel, kDelegate, kMove, kJumpIfFalse, kNothing };
  Kind kind = Kind::kNothing;
  bool observed = false;
  const kernels::Kernel* kernel = nullptr;
  std::span<kernels::Value* const> args = {};
  std::span<kernels::Tensor* const> inputs = {};  // tensors that are read
  std::span<kernels::Tensor* const> outs = {};    // tensors that are written
  kernels::Value* from = nullptr;                 // kMove; kJumpIfFalse: the condition
  kernels::Value* to = nullptr;                   // kMove
  size_t destination = 0;                         // kJumpIfFalse
  Delegate* delegate = nullptr;                   // kDelegate
  const kernels::Tensor* in_rows = nullptr;       // kDelegate for some rows of a linear layer
  kernels::Tensor* out_rows = nullptr;

  bool is_view() const {
    return kind == Kind::kKernel && kernel->memory == kernels::Kernel::Memory::kView;
  }
  bool in_place() const {
    return kind == Kind::kKernel && kernel->memory == kernels::Kernel::Memory::kInPlace;
  }
  // Whether it writes to the memory of `outs`.
  bool writes() const { return (kind == Kind::kKernel && !is_view()) || kind == Kind::kDelegate; }
};

struct Observer {
  size_t step;
  int32_t value;
  std::function<void(const TensorView&)> call;
};

// A tensor that views or moves point elsewhere, and what it is at the start of an execution.
struct Rebound {
  kernels::Tensor* tensor;
  kernels::Tensor home;
};

// A number that an instruction writes, and what it is at the start of an execution.
struct WrittenNumber {
  kernels::Value* value;
  kernels::Value home;
};

// The changes that join_caches and read_stored_caches make.
struct JoinedCaches {
  std::vector<std::pair<size_t, Step>> stated;  // changed steps as they were
  std::vector<int32_t> values;                  // that are not computed, or not all of them
  std::deque<kernels::Value> made;              // arguments that no program has
  std::deque<std::vector<kernels::Value*>> args;
  std::deque<std::vector<kernels::Tensor*>> inputs;
};

// An output whose rows can be computed by themselves, see find_row_outputs.
struct RowOutput {
  // A step as it is stated and for some rows, and the tensors that it reads and writes.
  struct Link {
    size_t step;
    Step stated, some;
    kernels::Tensor *in, *out;
    kernels::Tensor *in_rows = nullptr, *out_rows = nullptr;
  };
  int64_t rows = 0;
  std::vector<Link> links = {};
};

struct MethodState {
  std::string file;    // begins the messages
  std::string method;  // its name
  bool poison = false;
  bool widen = false;
  bool round_rows = false;
  bool f64 = false;
  std::optional<uint64_t> disturb;
  bool literal = false;
  // Factor of planned sizes and offsets: what is wider than the program states needs more room.
  uint64_t scale = 1;

  std::vector<kernels::Value> values;   // never resized after loading: others point into them
  std::deque<kernels::Tensor> tensors;  // of the values
  std::vector<kernels::Dims> bounds;    // per value: declared sizes of a tensor
  std::vector<DType> declared;          // per value: the dtype that the program states
  std::vector<bool> planned;            // per value: has memory in an arena
  std::vector<Rebound> rebound;
  std::vector<WrittenNumber> written_numbers;

  std::vector<int32_t> inputs, outputs;              // value indices
  std::vector<bool> input_set;                       // per input
  std::vector<std::vector<std::byte>> input_copies;  // per input: the caller's bytes, if unaligned
  std::vector<TensorView> output_views;              // per output: of the last execution
  std::vector<std::vector<std::byte>> narrowed;      // with f64, per output: in its declared dtype

  std::vector<Step> steps;
  std::vector<std::string> step_names;               // operator of each step, for messages
  std::vector<kernels::Value*> step_values;          // Step::args
  std::vector<kernels::Tensor*> step_tensors;        // Step::inputs and ::outs
  std::vector<std::vector<int32_t>> written;         // per step: values that it produces
  std::vector<std::unique_ptr<Delegate>> delegates;  // of steps
  std::vector<Observer> observers;
  JoinedCaches joined;
  std::vector<RowOutput> row_outputs;       // per output
  std::deque<kernels::Tensor> row_tensors;  // of their links
  std::deque<kernels::Value> row_values;
  std::deque<std::vector<kernels::Value*>> row_args;

  std::shared_ptr<ProgramMemory> memory;  // planned by the program
  Arena outs;                             // of results that the program does not plan

  // "FILE: method 'm': MESSAGE"
  Failure error(ErrorCode code, const std::string& message) const;
  Failure bad(const std::string& message) const;
  // "FILE: method 'm', instruction N (operator): " before the message.
  Error at_step(size_t step, Error error) const;
  // Tensors where they are, and numbers as they are, at the start of an execution.
  void start();
  // State as it is before the first execution.
  void reset();
};

// Whether memory can be read as elements of that size.
inline bool is_aligned(const void* data, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element_bytes) == 0;
}

// `sizes` are those that the view shows; its bytes are those of the tensor, none where it has no
// memory.
void set_view(const kernels::Tensor& tensor, const kernels::Dims& sizes, TensorView& view);
// A number is a view of rank 0 of its own storage, and a String one of rank 1 of its bytes.
void set_view(const kernels::Value& value, TensorView& view);
TensorView view_of(const kernels::Value& value);

// Copies a number, or where a tensor is and its sizes. Lists are never moved, and kinds are equal.
void move_value(const kernels::Value& from, kernels::Value& to);

// Memory for tensors without elements, which must not be null.
std::byte* no_bytes();

// kUnsupported for delegates of other backends than XNNPACK and for operators without a kernel, all
// of which it lists.
Status check_operators(const pte::Method& method, const MethodState& state);

// MethodState::scale for MethodOptions::f64.
uint64_t f64_scale(std::span<const pte::Method* const> methods);
// Allocates the memory that `methods` of one program share: each memory id is as large as the
// method that asks for most, times `scale`. Errors as for Method::load.
Result<std::shared_ptr<ProgramMemory>> allocate_memory(std::span<const pte::Method* const> methods,
                                                       MemoryBudget& budget, bool poison,
                                                       uint64_t scale);

// Executes the instructions once, from start(). kBadInput for what a program may not do: read a
// value before it is set, write memory that another value of the instruction is in, or never end.
Status run_steps(MethodState& state, ThreadPool& pool);

// Fills `state`, whose file, poison, widen and memory are set. Errors as for Method::load.
Status load_method(const pte::LoadedProgram& program, const pte::Method& method,
                   const std::vector<ExternalTensor>& external, MemoryBudget& budget,
                   MethodState& state);

}  // namespace ferry::runner
