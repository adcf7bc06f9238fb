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
#include "kernels/seen_columns.h"
#include "runner/delegate/delegate.h"
#include "runner/memory.h"
#include "runner/method.h"

namespace ferry::runner {

// One instruction with resolved arguments.
struct Step {
  enum class Kind : uint8_t { kKernel, kDelegate, kMove, kJumpIfFalse, kNothing };
  Kind kind = Kind::kNothing;
  bool observed = false;
  const kernels::Kernel* kernel = nullptr;
  std::span<kernels::Value* const> args = {};
  std::span<kernels::Tensor* const> inputs = {};  // tensors that are read
  std::span<kernels::Tensor* const> outs = {};    // tensors that are written
  kernels::Value* from = nullptr;                 // kMove: the source; kJumpIfFalse: the condition
  kernels::Value* to = nullptr;                   // kMove
  size_t destination = 0;                         // kJumpIfFalse
  Delegate* delegate = nullptr;                   // kDelegate
  // kDelegate: the input, if only some rows of a linear layer are computed
  const kernels::Tensor* in_rows = nullptr;
  kernels::Tensor* out_rows = nullptr;

  bool is_view() const {
    return kind == Kind::kKernel && kernel->memory == kernels::Kernel::Memory::kView;
  }
  bool in_place() const {
    return kind == Kind::kKernel && kernel->memory == kernels::Kernel::Memory::kInPlace;
  }
  // Returns whether the step writes to the memory of `outs`.
  bool writes() const { return (kind == Kind::kKernel && !is_view()) || kind == Kind::kDelegate; }
};

struct Observer {
  size_t step;
  int32_t value;
  std::function<void(const TensorView&)> call;
};

// A tensor whose memory views or moves change, and its initial state in every execution.
struct Rebound {
  kernels::Tensor* tensor;
  kernels::Tensor home;
};

// A number that an instruction writes, and its initial value in every execution.
struct WrittenNumber {
  kernels::Value* value;
  kernels::Value home;
};

// The changes that join_caches, leave_out_hidden_columns, read_stored_caches, join_norms and
// join_gates make.
struct JoinedCaches {
  std::vector<std::pair<size_t, Step>> stated;  // changed steps in their stated form
  std::vector<int32_t> values;                  // values that are not, or not completely, computed
  std::deque<kernels::Value> made;              // arguments that the program lacks
  std::deque<std::vector<kernels::Value*>> args;
  std::deque<std::vector<kernels::Tensor*>> inputs;
  std::deque<kernels::SeenMask> seen;  // of each mask
  std::deque<kernels::Tensor> seen_tensors;
  kernels::Value* stored = nullptr;          // the columns of `strided` inputs in memory; 0: all
  std::deque<kernels::Tensor> code_tensors;  // memory of caches that are held as codes
  std::vector<bool> strided;                 // per input: attention alone reads it, in place
};

// An output whose rows can be computed separately; see find_row_outputs.
struct RowOutput {
  // A step in its stated form and for some rows, and the tensors that it reads and writes.
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
  std::string file;    // begins error messages
  std::string method;  // its name
  bool poison = false;
  bool widen = false;
  bool round_rows = false;
  bool f64 = false;
  std::optional<uint64_t> disturb;
  bool literal = false;
  bool own_bf16 = false;
  KvBits kv_bits;
  // Factor of planned sizes and offsets, because values wider than the program states need more
  // memory.
  uint64_t scale = 1;

  // never resized after loading, because pointers refer to the elements
  std::vector<kernels::Value> values;
  std::deque<kernels::Tensor> tensors;  // tensors of the values
  std::vector<kernels::Dims> bounds;    // per value: declared sizes of a tensor
  std::vector<DType> declared;          // per value: the dtype that the program states
  std::vector<bool> planned;            // per value: has memory in an arena
  std::vector<bool> coded;              // per value: a cache that is held as codes; or empty
  std::vector<Rebound> rebound;
  std::vector<WrittenNumber> written_numbers;

  std::vector<int32_t> inputs, outputs;              // value indices
  std::vector<bool> input_set;                       // per input
  std::vector<std::vector<std::byte>> input_copies;  // per input: the caller's bytes, if unaligned
  std::vector<TensorView> output_views;              // per output: view of the last execution
  // with f64, per output: the bytes in its declared dtype
  std::vector<std::vector<std::byte>> narrowed;

  std::vector<Step> steps;
  std::vector<std::string> step_names;               // operator of each step, for messages
  std::vector<std::string> step_weights;             // per step: a weight that it reads, or empty
  std::vector<int64_t> most_rows;                    // per step, for run_together(); or empty
  Profile::Steps* profile = nullptr;                 // times of the steps, if they are measured
  std::vector<kernels::Value*> step_values;          // Step::args
  std::vector<kernels::Tensor*> step_tensors;        // Step::inputs and ::outs
  std::vector<std::vector<int32_t>> written;         // per step: values that it produces
  std::vector<std::unique_ptr<Delegate>> delegates;  // delegates of steps
  std::vector<Observer> observers;
  JoinedCaches joined;
  std::vector<RowOutput> row_outputs;       // per output
  std::deque<kernels::Tensor> row_tensors;  // tensors of the links of row outputs
  std::deque<kernels::Value> row_values;
  std::deque<std::vector<kernels::Value*>> row_args;

  std::shared_ptr<ProgramMemory> memory;  // planned by the program
  Arena outs;                             // results that the program does not plan
  std::deque<kernels::Value> literals;    // items of lists that the program states as literals

  bool is_coded(int32_t value) const { return !coded.empty() && coded[static_cast<size_t>(value)]; }
  // Returns an error with the message "FILE: method 'm': MESSAGE".
  Failure error(ErrorCode code, const std::string& message) const;
  Failure bad(const std::string& message) const;
  // Puts "FILE: method 'm', instruction N (operator): " before the message.
  Error at_step(size_t step, Error error) const;
  // Restores the memory of tensors and the values of numbers at the start of an execution.
  void start();
  // Restores the state before the first execution.
  void reset();
};

// Returns whether memory is aligned for elements of that size.
inline bool is_aligned(const void* data, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element_bytes) == 0;
}

// `sizes` are those of the view. Its bytes are those of the tensor, or none if the tensor has no
// memory.
void set_view(const kernels::Tensor& tensor, const kernels::Dims& sizes, TensorView& view);
// A number is a view of rank 0 of its own storage. A String is a view of rank 1 of its bytes.
void set_view(const kernels::Value& value, TensorView& view);
TensorView view_of(const kernels::Value& value);

// Copies a number, or the address and sizes of a tensor. Lists are never moved, and both kinds are
// equal.
void move_value(const kernels::Value& from, kernels::Value& to);

// Returns memory for tensors without elements, whose address must not be null.
std::byte* no_bytes();

// kUnsupported lists all delegates of other backends than XNNPACK and all operators without a
// kernel.
Status check_operators(const pte::Method& method, const MethodState& state);

// Returns MethodState::scale for MethodOptions::f64.
uint64_t f64_scale(std::span<const pte::Method* const> methods);
// Allocates the memory that `methods` of one program share. Each memory id has the size of the
// largest request, times `scale`; what `untouched` counts for an id is not taken from the budget.
// Errors as for Method::load.
Result<std::shared_ptr<ProgramMemory>> allocate_memory(std::span<const pte::Method* const> methods,
                                                       MemoryBudget& budget, bool poison,
                                                       uint64_t scale,
                                                       std::span<const uint64_t> untouched);

// Executes the instructions once, from start(). kBadInput for a program that reads a value before
// it is set, writes memory of another value of the instruction, or never ends.
Status run_steps(MethodState& state, ThreadPool& pool);
// The parts of run_steps(): steps [begin, end), and the check that every output is set.
Status run_range(MethodState& state, size_t begin, size_t end, ThreadPool& pool);
Status check_outputs(const MethodState& state);
// Executes several loads of one method, each once, from start(). Every result has the bits that it
// has alone. Products with a matrix are computed for all of them in one pass over the matrix; the
// steps between are divided among the threads. Errors as for run_steps().
Status run_together(std::span<MethodState* const> states, ThreadPool& pool);

// Fills `state`, whose file, poison, widen and memory must be set. Errors as for Method::load.
Status load_method(const pte::LoadedProgram& program, const pte::Method& method,
                   const std::vector<ExternalTensor>& external, MemoryBudget& budget,
                   MethodState& state);

}  // namespace ferry::runner
