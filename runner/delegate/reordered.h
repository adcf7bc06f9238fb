// Arguments of a delegate whose dimensions lie in memory in another order than row-major. A
// delegate takes such a tensor as the official runtime stores it: an image with its channels last
// is [batch, height, width, channels] to it. All tensors of a method are row-major here, so these
// arguments are copied.
#pragma once

#include <deque>
#include <span>

#include "core/result.h"
#include "core/thread_pool.h"
#include "kernels/tensor.h"
#include "runner/memory.h"

namespace ferry::runner {

class ReorderedArguments {
 public:
  // Returns the tensor that the delegate takes for `actual`, in memory of the budget; one for each
  // tensor. `order` is a permutation of its dimensions.
  Result<kernels::Tensor*> stand_in(kernels::Tensor& actual, std::span<const uint8_t> order,
                                    MemoryBudget& budget);

  bool empty() const { return arguments_.empty(); }
  // Replaces the tensors that stand for others by those.
  void replace_by_actual(std::span<kernels::Tensor*> tensors, bool are_inputs);

  // Copies the inputs to the tensors that stand for them.
  Status read(ThreadPool& pool);
  // Resizes the outputs, and copies the results to them.
  Status write(ThreadPool& pool);

 private:
  struct Argument {
    kernels::Tensor* actual;
    kernels::Dims order;
    kernels::Tensor tensor;
    Arena memory;
    bool is_input = false, is_output = false;
  };
  std::deque<Argument> arguments_;
};

}  // namespace ferry::runner
