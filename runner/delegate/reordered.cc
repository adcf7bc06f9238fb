#include "runner/delegate/reordered.h"

#include <algorithm>

#include "kernels/kernel.h"
#include "kernels/strided_copy.h"

namespace ferry::runner {

using kernels::Dims;
using kernels::Tensor;

namespace {

Dims stored_sizes(const Dims& actual, const Dims& order) {
  Dims out = actual;
  for (int i = 0; i < order.rank(); ++i) out[i] = actual[static_cast<int>(order[i])];
  return out;
}

Dims actual_sizes(const Dims& stored, const Dims& order) {
  Dims out = stored;
  for (int i = 0; i < order.rank(); ++i) out[static_cast<int>(order[i])] = stored[i];
  return out;
}

// Returns the strides of the stored tensor in the dimensions of the actual one.
Dims actual_strides(const Tensor& stored, const Dims& order) {
  return actual_sizes(kernels::contiguous_strides(stored.sizes), order);
}

}  // namespace

Result<Tensor*> ReorderedArguments::stand_in(Tensor& actual, std::span<const uint8_t> order,
                                             MemoryBudget& budget) {
  for (Argument& argument : arguments_) {
    if (argument.actual == &actual) return &argument.tensor;
  }
  Argument& made = arguments_.emplace_back();
  made.actual = &actual;
  for (const uint8_t dim : order) made.order.push_back(dim);
  made.tensor = actual;
  made.tensor.capacity = static_cast<uint64_t>(actual.bytes());
  made.tensor.writable = true;
  made.tensor.sizes = stored_sizes(actual.sizes, made.order);
  made.memory = FERRY_TRY(Arena::allocate(std::max<uint64_t>(made.tensor.capacity, 1), budget));
  made.tensor.data = made.memory.data();
  return &made.tensor;
}

void ReorderedArguments::replace_by_actual(std::span<Tensor*> tensors, bool are_inputs) {
  for (Tensor*& tensor : tensors) {
    for (Argument& argument : arguments_) {
      if (tensor != &argument.tensor) continue;
      tensor = argument.actual;
      (are_inputs ? argument.is_input : argument.is_output) = true;
    }
  }
}

Status ReorderedArguments::read(ThreadPool& pool) {
  for (Argument& argument : arguments_) {
    if (!argument.is_input) continue;
    const Tensor& from = *argument.actual;
    FERRY_RETURN_IF_ERROR(
        kernels::resize(argument.tensor, stored_sizes(from.sizes, argument.order)));
    const kernels::Strided to = {argument.tensor.data,
                                 actual_strides(argument.tensor, argument.order)};
    kernels::strided_copy(pool, from.sizes, from.element_bytes(), kernels::strided(from), to);
  }
  return {};
}

Status ReorderedArguments::write(ThreadPool& pool) {
  for (Argument& argument : arguments_) {
    if (!argument.is_output) continue;
    const Tensor& from = argument.tensor;
    const Dims sizes = actual_sizes(from.sizes, argument.order);
    FERRY_RETURN_IF_ERROR(kernels::resize(*argument.actual, sizes));
    const kernels::Strided stored = {from.data, actual_strides(from, argument.order)};
    kernels::strided_copy(pool, sizes, from.element_bytes(), stored,
                          kernels::strided(*argument.actual));
  }
  return {};
}

}  // namespace ferry::runner
