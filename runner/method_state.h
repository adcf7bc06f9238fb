// What a loaded method consists of. method_load.cc builds it, method.cc executes it.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "runner/kernels/kernel_table.h"
#include "runner/memory.h"
#include "runner/method.h"

namespace ferry::runner {

// One instruction, with everything looked up.
struct Step {
  enum class Kind : uint8_t { kKernel, kMove, kJumpIfFalse, kNothing };
  Kind kind = Kind::kNothing;
  bool observed = false;
  const kernels::Kernel* kernel = nullptr;
  std::span<kernels::Value* const> args = {};
  std::span<kernels::Tensor* const> inputs = {};  // tensors that are read
  std::span<kernels::Tensor* const> outs = {};    // tensors that are written
  kernels::Value* from = nullptr;                 // kMove; kJumpIfFalse: the condition
  kernels::Value* to = nullptr;                   // kMove
  size_t destination = 0;                         // kJumpIfFalse
};

// Contents that reset() restores.
struct InitialContents {
  size_t arena;
  uint64_t offset;
  std::span<const std::byte> bytes;
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

struct MethodState {
  std::string file;    // begins the messages
  std::string method;  // its name
  bool poison = false;
  bool widen = false;

  std::vector<kernels::Value> values;   // never resized after loading: others point into them
  std::deque<kernels::Tensor> tensors;  // of the values
  std::vector<kernels::Dims> bounds;    // per value: declared sizes of a tensor
  std::vector<bool> planned;            // per value: has memory in an arena
  std::vector<Rebound> rebound;

  std::vector<int32_t> inputs, outputs;              // value indices
  std::vector<bool> input_set;                       // per input
  std::vector<std::vector<std::byte>> input_copies;  // per input: the caller's bytes, if unaligned

  std::vector<Step> steps;
  std::vector<std::string> step_names;         // operator of each step, for messages
  std::vector<kernels::Value*> step_values;    // Step::args
  std::vector<kernels::Tensor*> step_tensors;  // Step::inputs and ::outs
  std::vector<std::vector<int32_t>> written;   // per step: values that it produces

  std::vector<Arena> arenas;      // [m] is memory id m; the last is for outs without a plan
  std::vector<bool> holds_state;  // per arena: something in it is read before it is written
  std::vector<InitialContents> initial;
  std::deque<std::vector<std::byte>> copies;  // of constants that are not aligned
  std::vector<Observer> observers;

  // "FILE: method 'm', instruction N (operator): " before the message.
  Error at_step(size_t step, Error error) const;
  // Planned memory as it is before the first execution; only arenas that hold state, or all.
  void fill_arenas(bool all);
};

// Whether memory can be read as elements of that size.
inline bool is_aligned(const void* data, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element_bytes) == 0;
}

// Memory for tensors without elements, which must not be null.
std::byte* no_bytes();

// Fills `state`, whose file and poison are set. Errors as for Method::load.
Status load_method(const pte::LoadedProgram& program, const pte::Method& method,
                   const std::vector<ExternalTensor>& external, MethodState& state);

}  // namespace ferry::runner
