// The state of a loaded method, and the execution of its instructions.
#include <fmt/format.h>

#include <algorithm>

#include "core/interrupt.h"
#include "core/text.h"
#include "kernels/bf16_linear.h"
#include "kernels/kernel.h"
#include "runner/method_state.h"

namespace ferry::runner {
namespace {

// The official runtime has the same limit: a loop that never ends is an error.
constexpr int64_t kMaxSteps = 10'000'000;

bool overlap(const std::byte* a, uint64_t a_size, const std::byte* b, uint64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

// Returns whether an input is exactly the memory of an out, which elementwise operators allow.
bool shared(const kernels::Tensor& out, const kernels::Tensor& input) {
  return out.data == input.data && out.element_bytes() == input.element_bytes();
}

// Returns the bytes that a tensor may use. For memory of the caller these are only the bytes of its
// current sizes.
uint64_t extent(const kernels::Tensor& tensor) {
  return tensor.writable ? tensor.capacity : static_cast<uint64_t>(tensor.bytes());
}

Status check_input(const kernels::Tensor& input) {
  if (input.data != nullptr) return {};
  return bad_input(fmt::format("{} is used before it is set", kernels::describe(input)));
}

Status check_out(const Step& step, size_t i) {
  const kernels::Tensor& out = *step.outs[i];
  FERRY_RETURN_IF_ERROR(check_input(out));
  if (!out.writable) return bad_input(fmt::format("{} cannot be written", kernels::describe(out)));
  for (const kernels::Tensor* input : step.inputs) {
    if (!overlap(out.data, out.capacity, input->data, extent(*input))) continue;
    if (step.in_place() && shared(out, *input)) continue;
    return bad_input(
        fmt::format("{} lies over input {}", kernels::describe(out), kernels::describe(*input)));
  }
  for (const kernels::Tensor* other : step.outs.first(i)) {
    if (other != &out && overlap(out.data, out.capacity, other->data, other->capacity)) {
      return bad_input(
          fmt::format("{} lies over {}", kernels::describe(out), kernels::describe(*other)));
    }
  }
  return {};
}

// An input that shares its memory with the result must be equally large. Otherwise it is
// overwritten while it is being broadcast.
Status check_shared(const Step& step) {
  for (const kernels::Tensor* out : step.outs) {
    for (const kernels::Tensor* input : step.inputs) {
      if (out->data == input->data && out->numel != input->numel && out->capacity > 0) {
        return bad_input(fmt::format("{} lies over input {}", kernels::describe(*out),
                                     kernels::describe(*input)));
      }
    }
  }
  return {};
}

Status run_step(const Step& step, ThreadPool& pool) {
  for (const kernels::Tensor* input : step.inputs) FERRY_RETURN_IF_ERROR(check_input(*input));
  if (step.writes()) {
    for (size_t i = 0; i < step.outs.size(); ++i) FERRY_RETURN_IF_ERROR(check_out(step, i));
  }
  if (step.in_rows != nullptr) return step.delegate->run_rows(*step.in_rows, *step.out_rows, pool);
  if (step.kind == Step::Kind::kDelegate) return step.delegate->run(pool);
  const kernels::Kernel& kernel = *step.kernel;
  FERRY_RETURN_IF_ERROR(kernel.run({step.args, kernel.variant, pool}));
  return step.in_place() ? check_shared(step) : Status();
}

Status run_measured(const Step& step, size_t index, Profile::Steps& profile, ThreadPool& pool) {
  const auto start = Profile::Clock::now();
  Status status = run_step(step, pool);
  profile.add(index, Profile::Clock::now() - start);
  return status;
}

void notify(const MethodState& state, size_t step) {
  for (const Observer& observer : state.observers) {
    if (observer.step == step) {
      observer.call(view_of(state.values[static_cast<size_t>(observer.value)]));
    }
  }
}

// Returns whether the condition of a jump is true. A tensor without memory yet is not.
bool is_true(const kernels::Value& condition) {
  const kernels::Tensor* tensor = condition.tensor;
  if (tensor == nullptr) return condition.boolean;
  return tensor->data != nullptr &&
         std::all_of(tensor->data, tensor->data + tensor->numel,
                     [](std::byte value) { return value != std::byte{0}; });
}

// Prefetches the data that a step reads first. The weights of the step before may have displaced it
// from the caches.
void prefetch(const Step& step) {
  for (const kernels::Value* value : step.args) __builtin_prefetch(value);
  for (const kernels::Tensor* input : step.inputs) __builtin_prefetch(input);
  for (const kernels::Tensor* out : step.outs) __builtin_prefetch(out);
}

}  // namespace

Status run_range(MethodState& state, size_t begin, size_t end, ThreadPool& pool) {
  const kernels::Bf16Choice products(state.own_bf16);
  constexpr size_t kAhead = 2;
  int64_t executed = 0;
  for (size_t i = begin; i < end;) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const Step& step = state.steps[i];
    if (i + kAhead < state.steps.size()) prefetch(state.steps[i + kAhead]);
    if (++executed > kMaxSteps) {
      return bad_input(fmt::format("{}: method {} does not end after {} instructions", state.file,
                                   quoted(state.method), kMaxSteps));
    }
    if (step.kind == Step::Kind::kKernel || step.kind == Step::Kind::kDelegate) {
      Status status = state.profile == nullptr ? run_step(step, pool)
                                               : run_measured(step, i, *state.profile, pool);
      if (!status) {
        return Failure(state.at_step(i, std::move(status).error()));
      }
    } else if (step.kind == Step::Kind::kMove) {
      move_value(*step.from, *step.to);
    }
    if (step.observed) notify(state, i);
    i = step.kind == Step::Kind::kJumpIfFalse && !is_true(*step.from) ? step.destination : i + 1;
  }
  return {};
}

Status check_outputs(const MethodState& state) {
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    const kernels::Value& value = state.values[static_cast<size_t>(state.outputs[i])];
    if (value.tensor != nullptr && value.tensor->data == nullptr) {
      return bad_input(fmt::format("{}: method {}: output {} is never set", state.file,
                                   quoted(state.method), i));
    }
  }
  return {};
}

Status run_steps(MethodState& state, ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(run_range(state, 0, state.steps.size(), pool));
  return check_outputs(state);
}

void set_view(const kernels::Tensor& tensor, const kernels::Dims& sizes, TensorView& view) {
  view.dtype = tensor.dtype;
  view.shape.assign(sizes.begin(), sizes.end());
  view.bytes = {};
  if (tensor.data != nullptr) view.bytes = {tensor.data, static_cast<size_t>(tensor.bytes())};
}

void set_view(const kernels::Value& value, TensorView& view) {
  if (value.tensor != nullptr) return set_view(*value.tensor, value.tensor->sizes, view);
  view.shape.clear();
  switch (value.kind) {
    case kernels::Value::Kind::kBool:
      view.dtype = DType::kBool;
      view.bytes = std::as_bytes(std::span(&value.boolean, 1));
      break;
    case kernels::Value::Kind::kDouble:
      view.dtype = DType::kF64;
      view.bytes = std::as_bytes(std::span(&value.real, 1));
      break;
    case kernels::Value::Kind::kString:
      view.dtype = DType::kU8;
      view.shape = {static_cast<int64_t>(value.text.size())};
      view.bytes = std::as_bytes(std::span(value.text));
      break;
    default:
      view.dtype = DType::kI64;
      view.bytes = std::as_bytes(std::span(&value.integer, 1));
  }
}

TensorView view_of(const kernels::Value& value) {
  TensorView view;
  set_view(value, view);
  return view;
}

void move_value(const kernels::Value& from, kernels::Value& to) {
  if (from.tensor == nullptr) {
    to.boolean = from.boolean;
    to.integer = from.integer;
    to.real = from.real;
  } else if (from.tensor != to.tensor) {
    const int32_t id = to.tensor->id;
    *to.tensor = *from.tensor;
    to.tensor->id = id;
  }
}

std::byte* no_bytes() {
  alignas(64) static std::byte nothing[64];
  return nothing;
}

Error MethodState::at_step(size_t step, Error error) const {
  error.message = fmt::format("{}: method {}, instruction {} ({}): {}", file, quoted(method), step,
                              step_names[step], error.message);
  return error;
}

Failure MethodState::error(ErrorCode code, const std::string& message) const {
  return fail(code, fmt::format("{}: method {}: {}", file, quoted(method), message));
}

Failure MethodState::bad(const std::string& message) const {
  return error(ErrorCode::kBadInput, message);
}

void MethodState::start() {
  for (const Rebound& each : rebound) *each.tensor = each.home;
  for (kernels::SeenMask& seen : joined.seen) seen.restart();
  for (const WrittenNumber& number : written_numbers) move_value(number.home, *number.value);
}

void MethodState::reset() {
  memory->fill(poison);
  outs.refill(poison);
  start();
  for (kernels::Tensor& tensor : tensors) {
    tensor.sizes = bounds[static_cast<size_t>(tensor.id)];
    tensor.numel = kernels::numel(tensor.sizes.span());
  }
}

}  // namespace ferry::runner
