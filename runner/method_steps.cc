// The instructions of a method with everything looked up. Offers make_steps.
#include <fmt/format.h>

#include "core/text.h"
#include "formats/pte/op_schema.h"
#include "runner/method_loading.h"

namespace ferry::runner {
namespace {

// What a kernel call reads and writes: values, the tensors of lists among them.
struct Uses {
  IndexList read, written;
};

Uses uses_of(const MethodState& state, const pte::OpSchema& schema, const pte::KernelCall& call) {
  Uses uses;
  for (size_t i = 0; i < schema.args.size(); ++i) {
    const bool out = schema.args[i].out || schema.args[i].mutated;
    IndexList& list = out ? uses.written : uses.read;
    const kernels::Value& value = state.values[static_cast<size_t>(call.args[i])];
    if (out || value.tensor != nullptr) list.push_back(value.id);
    for (const kernels::Value* item : value.items) {
      if (item != nullptr && item->tensor != nullptr) list.push_back(item->id);
    }
  }
  return uses;
}

// Views and moves change where a tensor's memory is; what it was at first is restored every time.
Status note_rebound(MethodState& state, int32_t value) {
  for (int32_t input : state.inputs) {
    if (input == value) return state.bad(fmt::format("value {} is an input and rebound", value));
  }
  kernels::Tensor* target = state.values[static_cast<size_t>(value)].tensor;
  state.rebound.push_back({target, *target});
  return {};
}

std::span<kernels::Tensor* const> append_tensors(const Loading& loading, const IndexList& ids) {
  std::vector<kernels::Tensor*>& tensors = loading.state.step_tensors;
  const size_t begin = tensors.size();
  for (int32_t id : ids) {
    if (loading.tensor(id) != nullptr) tensors.push_back(loading.tensor(id));
  }
  return {tensors.data() + begin, tensors.size() - begin};
}

std::span<kernels::Value* const> append_values(MethodState& state, const IndexList& ids) {
  std::vector<kernels::Value*>& values = state.step_values;
  const size_t begin = values.size();
  for (int32_t id : ids) values.push_back(&state.values[static_cast<size_t>(id)]);
  return {values.data() + begin, ids.size()};
}

Status make_kernel_step(Loading& loading, const pte::KernelCall& call, size_t index, Step& step) {
  MethodState& state = loading.state;
  const std::string name = loading.method.operators[static_cast<size_t>(call.op)].full_name();
  const pte::OpSchema& schema = *pte::find_op_schema(name);
  step.kind = Step::Kind::kKernel;
  step.kernel = kernels::find_kernel(name);
  state.step_names[index] = name;
  if (call.args.size() != schema.call_args()) {
    return state.bad(fmt::format("instruction {} ({}) has {} arguments, expected {}", index, name,
                                 call.args.size(), schema.call_args()));
  }
  Uses uses = uses_of(state, schema, call);
  loading.reads[index] = uses.read;
  // An operator also reads what it changes, except a copy over all of it.
  for (size_t i = 0; i < schema.args.size() && name != "aten::copy_"; ++i) {
    if (schema.args[i].mutated) loading.reads[index].push_back(call.args[i]);
  }
  step.inputs = append_tensors(loading, uses.read);
  step.outs = append_tensors(loading, uses.written);
  step.args = append_values(state, call.args);
  if (step.kernel->memory == kernels::Kernel::Memory::kView) {
    for (int32_t id : uses.written) FERRY_RETURN_IF_ERROR(note_rebound(state, id));
  } else {
    loading.unplanned[index] = uses.written;
  }
  state.written[index] = std::move(uses.written);
  return {};
}

Status make_move(Loading& loading, const pte::MoveCall& call, size_t index, Step& step) {
  MethodState& state = loading.state;
  state.step_names[index] = "move";
  state.written[index] = {call.to};
  loading.reads[index] = {call.from};
  step.kind = Step::Kind::kMove;
  step.from = &state.values[static_cast<size_t>(call.from)];
  step.to = &state.values[static_cast<size_t>(call.to)];
  if (step.from->kind != step.to->kind ||
      (step.from->tensor == nullptr && !step.from->is_number())) {
    return state.bad(fmt::format("value {} cannot be moved to value {}", call.from, call.to));
  }
  return step.to->tensor != nullptr ? note_rebound(state, call.to) : Status();
}

Status make_jump(Loading& loading, const pte::JumpFalseCall& call, size_t index, Step& step) {
  MethodState& state = loading.state;
  state.step_names[index] = "jump";
  step.kind = Step::Kind::kJumpIfFalse;
  step.from = &state.values[static_cast<size_t>(call.condition)];
  step.destination = static_cast<size_t>(call.destination);
  if (step.from->kind == kernels::Value::Kind::kBool && call.destination >= 0 &&
      step.destination <= loading.method.instructions.size()) {
    return {};
  }
  return state.bad(
      fmt::format("a jump to instruction {} on value {}", call.destination, call.condition));
}

// Steps refer into the lists of values and tensors, which therefore must not move as they grow.
void reserve_arguments(Loading& loading) {
  size_t values = 0;
  size_t tensors = 0;
  for (const pte::Instruction& instruction : loading.method.instructions) {
    const auto* call = std::get_if<pte::KernelCall>(&instruction);
    if (call == nullptr) continue;
    values += call->args.size();
    for (int32_t id : call->args) {
      tensors += 1 + loading.state.values[static_cast<size_t>(id)].items.size();
    }
  }
  loading.state.step_values.reserve(values);
  loading.state.step_tensors.reserve(tensors);
}

Status make_step(Loading& loading, size_t index) {
  const pte::Instruction& instruction = loading.method.instructions[index];
  Step& step = loading.state.steps[index];
  if (const auto* kernel = std::get_if<pte::KernelCall>(&instruction)) {
    return make_kernel_step(loading, *kernel, index, step);
  }
  if (const auto* move = std::get_if<pte::MoveCall>(&instruction)) {
    return make_move(loading, *move, index, step);
  }
  if (const auto* jump = std::get_if<pte::JumpFalseCall>(&instruction)) {
    return make_jump(loading, *jump, index, step);
  }
  const auto* delegate = std::get_if<pte::DelegateCall>(&instruction);
  return delegate == nullptr ? Status() : make_delegate_step(loading, *delegate, index, step);
}

}  // namespace

Status make_steps(Loading& loading) {
  const size_t count = loading.method.instructions.size();
  loading.state.steps.resize(count);
  loading.state.step_names.resize(count);
  loading.state.written.resize(count);
  loading.reads.resize(count);
  loading.unplanned.resize(count);
  reserve_arguments(loading);
  for (size_t i = 0; i < count; ++i) FERRY_RETURN_IF_ERROR(make_step(loading, i));
  return {};
}

}  // namespace ferry::runner
