// Executes several loads of one method in step with each other. The weights are most of the bytes
// that decoding reads, so several sequences cost little more than one.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "core/checked.h"
#include "core/interrupt.h"
#include "formats/pte/operator_args.h"
#include "kernels/compute_scratch.h"
#include "kernels/kernel.h"
#include "runner/method_state.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;

constexpr uint64_t kAlignment = 64;

// Operators that multiply the rows of their first argument with matrices.
constexpr std::string_view kProducts[] = {pte::ops::Linear::kName, pte::ops::MixedLinear::kName,
                                          pte::ops::BlockLinear::kName, "ferry::block_linears.out"};

bool is_product(const Step& step) {
  if (step.kind == Step::Kind::kDelegate) {
    return step.in_rows == nullptr && step.delegate->is_by_rows();
  }
  return step.kind == Step::Kind::kKernel &&
         std::ranges::find(kProducts, step.kernel->name) != std::end(kProducts);
}

// Returns the rows that a product reads.
Tensor& rows_of(const Step& step) {
  return step.kind == Step::Kind::kDelegate ? *step.inputs.front() : *step.args.front()->tensor;
}

bool is_one_row(const Tensor& tensor) {
  return tensor.rank() > 1 && tensor.sizes[0] == 1 && tensor.data != nullptr && tensor.numel > 0 &&
         tensor.numel == tensor.sizes.back();
}

size_t row_bytes(const Tensor& tensor) {
  return static_cast<size_t>(tensor.sizes.back() * tensor.element_bytes());
}

// Lends a tensor memory for rows of all states, in dimension 0, until the object is destroyed.
class Rows {
 public:
  Rows(Tensor& tensor, size_t count, std::byte* memory) : tensor_(tensor), home_(tensor) {
    for (int d = 0; d + 1 < tensor.rank(); ++d) tensor.sizes[d] = 1;
    tensor.sizes[0] = static_cast<int64_t>(count);
    tensor.numel = tensor.sizes[0] * tensor.sizes.back();
    tensor.capacity = count * row_bytes(tensor);
    tensor.data = memory;
    tensor.dynamic = true;
  }
  ~Rows() { tensor_ = home_; }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

 private:
  Tensor& tensor_;
  Tensor home_;
};

class Together {
 public:
  Together(std::span<MethodState* const> states, ThreadPool& pool) : states_(states), pool_(pool) {
    for (size_t i = 0; i < states.size(); ++i) alone_.push_back(std::make_unique<ThreadPool>(1));
  }

  Status run() {
    const size_t count = states_.front()->steps.size();
    for (size_t begin = 0; begin < count;) {
      if (is_shared(begin)) {
        FERRY_RETURN_IF_ERROR(run_shared(begin++));
        continue;
      }
      size_t end = begin + 1;
      while (end < count && !is_product(states_.front()->steps[end])) ++end;
      FERRY_RETURN_IF_ERROR(run_apart(begin, end));
      begin = end;
    }
    for (const MethodState* state : states_) FERRY_RETURN_IF_ERROR(check_outputs(*state));
    return {};
  }

 private:
  bool is_shared(size_t index) const {
    if (!is_product(states_.front()->steps[index])) return false;
    return std::ranges::all_of(states_, [&](const MethodState* state) {
      const Step& step = state->steps[index];
      return is_one_row(rows_of(step)) && std::ranges::all_of(step.outs, [](const Tensor* out) {
               return out->rank() > 1 && out->writable && out->data != nullptr &&
                      out->sizes.back() > 0;
             });
    });
  }

  // Computes a product for the rows of all states by the step of the first state.
  Status run_shared(size_t index) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    MethodState& first = *states_.front();
    const Step& step = first.steps[index];
    const size_t count = states_.size(), in_bytes = row_bytes(rows_of(step));
    size_t bytes = align_up(count * in_bytes, kAlignment);
    for (const Tensor* out : step.outs) bytes += align_up(count * row_bytes(*out), kAlignment);
    const kernels::Scratch scratch(bytes / sizeof(float));
    std::byte* const in = reinterpret_cast<std::byte*>(scratch.data());
    for (size_t s = 0; s < count; ++s) {
      std::memcpy(in + s * in_bytes, rows_of(states_[s]->steps[index]).data, in_bytes);
    }
    const std::span<std::byte> results(in + align_up(count * in_bytes, kAlignment), in + bytes);
    Status status = multiply(step, in, results);
    for (size_t i = 0; status && i < step.outs.size(); ++i) status = give(index, i, results);
    return status ? Status() : Failure(first.at_step(index, std::move(status).error()));
  }

  Status multiply(const Step& step, std::byte* in, std::span<std::byte> results) {
    const Rows rows(rows_of(step), states_.size(), in);
    std::deque<Rows> outs;
    for (Tensor* out : step.outs) {
      outs.emplace_back(*out, states_.size(), results.data());
      results = results.subspan(align_up(out->capacity, kAlignment));
    }
    return step.kind == Step::Kind::kDelegate
               ? step.delegate->run(pool_)
               : step.kernel->run({step.args, step.kernel->variant, pool_});
  }

  // Copies row s of result `out` to state s.
  Status give(size_t index, size_t out, std::span<const std::byte> results) {
    const Step& step = states_.front()->steps[index];
    for (size_t i = 0; i < out; ++i) {
      results = results.subspan(align_up(states_.size() * row_bytes(*step.outs[i]), kAlignment));
    }
    for (const MethodState* state : states_) {
      Tensor& to = *state->steps[index].outs[out];
      kernels::Dims sizes = kernels::Dims::filled(to.rank(), 1);
      sizes[to.rank() - 1] = to.sizes.back();
      FERRY_RETURN_IF_ERROR(kernels::resize(to, sizes));
      std::memcpy(to.data, results.data(), row_bytes(to));
      results = results.subspan(row_bytes(to));
    }
    return {};
  }

  // Runs other steps of each state on a thread of its own.
  Status run_apart(size_t begin, size_t end) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    std::vector<Status> results(states_.size());
    pool_.parallel_for(states_.size(), [&](size_t s) {
      results[s] = run_range(*states_[s], begin, end, *alone_[s]);
    });
    for (Status& result : results) FERRY_RETURN_IF_ERROR(std::move(result));
    return {};
  }

  std::span<MethodState* const> states_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<ThreadPool>> alone_;  // one for each state
};

// Returns whether all steps of the states are executed once and unobserved, in one order.
bool can_share(std::span<MethodState* const> states) {
  return std::ranges::all_of(states, [&](const MethodState* state) {
    return state->steps.size() == states.front()->steps.size() && state->profile == nullptr &&
           std::ranges::none_of(state->steps, [](const Step& step) {
             return step.observed || step.kind == Step::Kind::kJumpIfFalse;
           });
  });
}

}  // namespace

Status run_together(std::span<MethodState* const> states, ThreadPool& pool) {
  if (states.size() > 1 && can_share(states)) return Together(states, pool).run();
  for (MethodState* state : states) FERRY_RETURN_IF_ERROR(run_steps(*state, pool));
  return {};
}

}  // namespace ferry::runner
