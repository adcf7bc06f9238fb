// Executes several loads of one method in step with each other. Decoding waits for the bytes of the
// weights, and all sequences share one pass over them.
//
// Steps that work row by row (products with a matrix, norms, sums) are executed once, by the first
// state, whose tensors have room for the rows of a prompt: row s is that of state s. All other
// steps (RoPE, caches, attention) are executed by each state, on a thread of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>

#include "core/checked.h"
#include "core/interrupt.h"
#include "formats/pte/operator_args.h"
#include "kernels/bf16_linear.h"
#include "kernels/compute_scratch.h"
#include "kernels/kernel.h"
#include "runner/method_state.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;

constexpr uint64_t kAlignment = 64;

// Operators that multiply the rows of their first argument with matrices.
constexpr std::string_view kProducts[] = {pte::ops::Linear::kName, pte::ops::MixedLinear::kName,
                                          pte::ops::BlockLinear::kName, "ferry::block_linears.out"};

// Operators that treat every row alike, if their other arguments are numbers or have the size of a
// row.
constexpr std::string_view kRowWise[] = {
    "aten::add.out",      "aten::add.Scalar_out", "aten::mean.out",  "aten::mul.out",
    "aten::_to_copy.out", "aten::mul.Scalar_out", "aten::rsqrt.out", "aten::sigmoid.out",
    "aten::sub.out",      "aten::gelu.out",       "aten::tanh.out",  "aten::native_layer_norm.out",
    "aten::relu.out",     "aten::div.out",        kRmsNormName,      kGatedProductName};

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

// Finds the steps that the first state can execute for all, and how many rows their tensors hold.
class RowSteps {
 public:
  explicit RowSteps(const MethodState& state)
      : state_(state), constant_(state.values.size(), true) {
    plain_ = state.planned;
    const auto drop = [](std::vector<bool>& of, int32_t id) {
      of[static_cast<size_t>(id)] = false;
    };
    for (const std::vector<int32_t>& written : state.written) {
      for (const int32_t id : written) drop(constant_, id);
    }
    for (const int32_t id : state.inputs) drop(constant_, id), drop(plain_, id);
    for (const Rebound& rebound : state.rebound) drop(plain_, rebound.tensor->id);
  }

  // Returns the most rows of each step; 0 for a step that is not executed by rows.
  std::vector<int64_t> find() const {
    std::vector<int64_t> most;
    for (const Step& step : state_.steps) most.push_back(most_rows(step));
    return most;
  }

 private:
  // Returns the most rows of a tensor [1, rows, width] with memory of its own, else 0.
  int64_t rows_in(const Tensor& tensor) const {
    const auto id = static_cast<size_t>(tensor.id);
    const kernels::Dims& bounds = state_.bounds[id];
    const bool has_rows = plain_[id] && tensor.dynamic && bounds.rank() == 3 && bounds[0] == 1;
    return has_rows ? bounds[1] : 0;
  }
  bool is_constant(const Tensor& tensor, bool any_size) const {
    const auto id = static_cast<size_t>(tensor.id);
    return constant_[id] && !state_.planned[id] &&
           (any_size || tensor.rank() <= 1 || tensor.numel == 1);
  }

  // Returns whether no number that the step reads may differ between the states.
  bool has_constant_numbers(const Step& step) const {
    const auto is_same = [&](const kernels::Value* value) {
      return value == nullptr || !value->is_number() ||
             (value->id >= 0 && constant_[static_cast<size_t>(value->id)]);
    };
    return std::ranges::all_of(step.args, [&](const kernels::Value* value) {
      return is_same(value) && std::ranges::all_of(value->items, is_same);
    });
  }

  int64_t most_rows(const Step& step) const {
    const bool product = is_product(step);
    const bool row_wise = step.kind == Step::Kind::kKernel &&
                          std::ranges::find(kRowWise, step.kernel->name) != std::end(kRowWise);
    if (!(product || row_wise) || !has_constant_numbers(step)) return 0;
    int64_t most = std::numeric_limits<int64_t>::max();
    size_t with_rows = 0;
    for (const Tensor* input : step.inputs) {
      if (is_constant(*input, product && input != &rows_of(step))) continue;
      most = std::min(most, rows_in(*input));
      ++with_rows;
    }
    for (const Tensor* out : step.outs) most = std::min(most, rows_in(*out));
    return with_rows == 0 || step.outs.empty() ? 0 : most;
  }

  const MethodState& state_;
  std::vector<bool> constant_;  // per value: not written, and no input
  std::vector<bool> plain_;     // per value: has planned memory of its own, and is no input
};

class Together {
 public:
  Together(std::span<MethodState* const> states, ThreadPool& pool)
      : states_(states), first_(*states.front()), pool_(pool), held_(first_.values.size(), kEach) {
    if (first_.most_rows.empty()) first_.most_rows = RowSteps(first_).find();
  }

  Status run() {
    const size_t count = first_.steps.size();
    for (size_t i = 0; i < count;) {
      if (is_by_rows(i)) {
        FERRY_RETURN_IF_ERROR(run_rows(i++));
        continue;
      }
      const size_t begin = i;
      FERRY_RETURN_IF_ERROR(separate(i++));
      if (has_one_row_each(begin)) {
        FERRY_RETURN_IF_ERROR(run_shared(begin));
        continue;
      }
      for (; i < count && is_apart(i); ++i) FERRY_RETURN_IF_ERROR(separate(i));
      FERRY_RETURN_IF_ERROR(run_apart(begin, i));
    }
    for (const int32_t output : first_.outputs) {
      if (Tensor* tensor = value(0, output)) FERRY_RETURN_IF_ERROR(split(*tensor));
    }
    for (const MethodState* state : states_) FERRY_RETURN_IF_ERROR(check_outputs(*state));
    return {};
  }

 private:
  // Where the rows of a value are: each in its state, or all in the first state, or both.
  static constexpr uint8_t kEach = 1, kFirst = 2;

  int64_t count() const { return std::ssize(states_); }
  Tensor* value(size_t state, int32_t id) const {
    return states_[state]->values[static_cast<size_t>(id)].tensor;
  }
  uint8_t& held(const Tensor& tensor) { return held_[static_cast<size_t>(tensor.id)]; }

  bool is_apart(size_t index) const {
    return first_.most_rows[index] == 0 && !is_product(first_.steps[index]);
  }
  bool is_by_rows(size_t index) {
    if (first_.most_rows[index] < count()) return false;
    return std::ranges::all_of(first_.steps[index].inputs, [&](const Tensor* input) {
      return !first_.planned[static_cast<size_t>(input->id)] || (held(*input) & kFirst) != 0 ||
             std::ranges::all_of(states_, [&](const MethodState* state) {
               const Tensor* own = state->values[static_cast<size_t>(input->id)].tensor;
               return own->numel == own->sizes.back() && own->data != nullptr;
             });
    });
  }

  // Sets the rows of a tensor of the first state.
  static void set_rows(Tensor& tensor, int64_t rows) {
    tensor.sizes[1] = rows;
    tensor.numel = rows * tensor.sizes.back();
  }
  // Puts the rows of all states into the tensor of the first one.
  void gather(Tensor& tensor) {
    if (!first_.planned[static_cast<size_t>(tensor.id)]) return;
    set_rows(tensor, count());
    if ((held(tensor) & kFirst) != 0) return;
    const size_t bytes = row_bytes(tensor);
    for (size_t s = 1; s < states_.size(); ++s) {
      std::memcpy(tensor.data + s * bytes, value(s, tensor.id)->data, bytes);
    }
    held(tensor) |= kFirst;
  }
  // Gives each state its row.
  Status split(Tensor& tensor) {
    if ((held(tensor) & kFirst) == 0) return {};
    set_rows(tensor, 1);
    if ((held(tensor) & kEach) != 0) return {};
    const size_t bytes = row_bytes(tensor);
    for (size_t s = 1; s < states_.size(); ++s) {
      Tensor& own = *value(s, tensor.id);
      FERRY_RETURN_IF_ERROR(kernels::resize(own, tensor.sizes));
      std::memcpy(own.data, tensor.data + s * bytes, bytes);
    }
    held(tensor) |= kEach;
    return {};
  }
  // Gives each state its rows of what a step reads.
  Status separate(size_t index) {
    const Step& step = first_.steps[index];
    for (Tensor* input : step.inputs) FERRY_RETURN_IF_ERROR(split(*input));
    if (step.kind == Step::Kind::kMove && step.from->tensor != nullptr) {
      FERRY_RETURN_IF_ERROR(split(*step.from->tensor));
    }
    for (const Tensor* out : step.outs) held(*out) = kEach;
    return {};
  }

  Status run_rows(size_t index) {
    const Step& step = first_.steps[index];
    for (Tensor* input : step.inputs) gather(*input);
    FERRY_RETURN_IF_ERROR(run_range(first_, index, index + 1, pool_));
    for (const Tensor* out : step.outs) {
      // A mean over the rows would mix the sequences.
      if (out->sizes[1] != count()) return first_.bad("an operator does not keep the rows apart");
      held(*out) = kFirst;
    }
    return {};
  }

  // Returns whether the step is a product that run_shared() can compute.
  bool has_one_row_each(size_t index) const {
    if (!is_product(first_.steps[index])) return false;
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
    const Step& step = first_.steps[index];
    const size_t rows = states_.size(), in_bytes = row_bytes(rows_of(step));
    size_t bytes = align_up(rows * in_bytes, kAlignment);
    for (const Tensor* out : step.outs) bytes += align_up(rows * row_bytes(*out), kAlignment);
    const kernels::Scratch scratch(bytes / sizeof(float));
    std::byte* const in = reinterpret_cast<std::byte*>(scratch.data());
    for (size_t s = 0; s < rows; ++s) {
      std::memcpy(in + s * in_bytes, rows_of(states_[s]->steps[index]).data, in_bytes);
    }
    const std::span<std::byte> results(in + align_up(rows * in_bytes, kAlignment), in + bytes);
    Status status = multiply(step, in, results);
    for (size_t i = 0; status && i < step.outs.size(); ++i) status = give(index, i, results);
    return status ? Status() : Failure(first_.at_step(index, std::move(status).error()));
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
    const Step& step = first_.steps[index];
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
    pool_.parallel_for(states_.size(),
                       [&](size_t s) { results[s] = run_range(*states_[s], begin, end, alone_); });
    for (Status& result : results) FERRY_RETURN_IF_ERROR(std::move(result));
    return {};
  }

  std::span<MethodState* const> states_;
  MethodState& first_;
  ThreadPool& pool_;
  ThreadPool alone_{1};        // of the steps of one state
  std::vector<uint8_t> held_;  // per value: kEach, kFirst
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
  const kernels::Bf16Choice products(!states.empty() && states.front()->own_bf16);
  if (states.size() > 1 && can_share(states)) return Together(states, pool).run();
  for (MethodState* state : states) FERRY_RETURN_IF_ERROR(run_steps(*state, pool));
  return {};
}

}  // namespace ferry::runner
