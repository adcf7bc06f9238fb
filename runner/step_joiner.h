// A base of join_norms and join_gates: it finds steps whose results nothing else reads, and lets
// the last of them compute all. This is not a public header.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "kernels/kernel.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {

// Steps that become one.
struct JoinedSteps {
  std::vector<size_t> steps = {};            // in any order while they are collected
  std::vector<kernels::Value*> inputs = {};  // tensors that they read
  kernels::Value* out = nullptr;             // the result of the last one
};

class StepJoiner {
 public:
  explicit StepJoiner(Loading& loading) : state_(loading.state), uses_(loading) {}

 protected:
  static bool is_f32(const kernels::Value* value);
  // Returns the step that makes `value`, if only `reader` reads it.
  std::optional<size_t> maker(const kernels::Value* value, size_t reader) const;
  // Returns the step that alone reads `value`, which must be no input or output.
  std::optional<size_t> only_reader_of(const kernels::Value* value) const;
  // The argument of a product that is not `value`; null if both are.
  kernels::Value* other_factor(size_t mul, const kernels::Value* value) const;

  // Takes f16 or bf16 in the place of `value`, their copy in f32, if only `readers` read that.
  void take_widening(kernels::Value*& value, std::initializer_list<size_t> readers,
                     std::vector<size_t>& steps) const;
  // Writes f16 or bf16 in the place of `out`, if only a cast reads that.
  void take_narrowing(JoinedSteps& joined) const;

  // Returns whether the last step finds the inputs as the first one that reads them does, and may
  // write over them. Sorts the steps.
  bool is_kept(JoinedSteps& joined) const;
  // The last step calls `kernel` with `args`.
  void apply(const JoinedSteps& joined, const kernels::Kernel& kernel,
             std::vector<kernels::Value*> args);

  MethodState& state_;
  StepUses uses_;

 private:
  bool only_readers(const kernels::Value* value, std::initializer_list<size_t> steps) const;
  bool is_cast(size_t step) const;
  bool in_order(const JoinedSteps& joined) const;
  bool stays(const JoinedSteps& joined, const kernels::Value* input) const;
};

}  // namespace ferry::runner
