// Loads a method: values, memory, data and instructions are resolved once. It defines load_method
// and allocate_memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/checked.h"
#include "core/dim_order.h"
#include "core/text.h"
#include "formats/pte/op_schema.h"
#include "kernels/kernel.h"
#include "runner/method_loading.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {
namespace {

constexpr uint64_t kAlignment = 64;

// Complex numbers stay within a program.
bool is_complex(const kernels::Value& value) {
  return value.tensor != nullptr && value.tensor->dtype == DType::kC64;
}

Status check_input_type(const MethodState& state, int32_t port) {
  const kernels::Value& value = state.values[static_cast<size_t>(port)];
  if (is_complex(value)) {
    return state.error(ErrorCode::kUnsupported, fmt::format("input {}: dtype c64", port));
  }
  if (value.kind == kernels::Value::Kind::kTensor || value.is_number()) return {};
  return state.error(ErrorCode::kUnsupported,
                     fmt::format("input {} is neither a tensor nor a number", port));
}

Status check_output(const MethodState& state, int32_t port) {
  const kernels::Value& value = state.values[static_cast<size_t>(port)];
  if (is_complex(value)) {
    return state.error(ErrorCode::kUnsupported, fmt::format("output {}: dtype c64", port));
  }
  if (value.kind == kernels::Value::Kind::kTensor || value.is_number() ||
      value.kind == kernels::Value::Kind::kString) {
    return {};
  }
  return state.error(ErrorCode::kUnsupported,
                     fmt::format("output {} is no tensor, number or text", port));
}

Status make_ports(Loading& loading) {
  MethodState& state = loading.state;
  state.inputs = loading.method.inputs;
  state.outputs = loading.method.outputs;
  for (int32_t port : state.inputs) FERRY_RETURN_IF_ERROR(check_input_type(state, port));
  for (int32_t port : state.outputs) FERRY_RETURN_IF_ERROR(check_output(state, port));
  state.input_copies.resize(state.inputs.size());
  state.output_views.resize(state.outputs.size());
  for (int32_t port : state.inputs) {
    const pte::Tensor* from = loading.pte_tensor(port);
    // Inputs that are numbers have the program's stored value until they are set.
    state.input_set.push_back(from == nullptr);
    if (from != nullptr && !from->allocation && (from->external || from->data_index > 0)) {
      return state.bad(fmt::format("value {} is an input and a constant", port));
    }
  }
  return {};
}

struct Place {
  kernels::Tensor* tensor;
  uint64_t offset;
};

// Places, one after the other, the tensors that a kernel writes and for which the program plans no
// memory.
Result<std::vector<Place>> place_unplanned(const Loading& loading, uint64_t& total) {
  MethodState& state = loading.state;
  std::vector<Place> places;
  for (const IndexList& outs : loading.unplanned) {
    for (int32_t id : outs) {
      kernels::Tensor* out = loading.tensor(id);
      if (out == nullptr || out->data != nullptr || state.planned[static_cast<size_t>(id)]) {
        continue;
      }
      if (std::ranges::count(state.inputs, id) > 0) {
        return state.bad(
            fmt::format("value {} is an input without memory of its own and written", id));
      }
      state.planned[static_cast<size_t>(id)] = true;
      places.push_back({out, total});
      const std::optional<uint64_t> sum = checked_add(total, out->capacity + kAlignment);
      if (!sum) return state.bad("the size of its results overflows");
      total = align_up(*sum - kAlignment, kAlignment);
    }
  }
  return places;
}

Status allocate_unplanned(const Loading& loading) {
  MethodState& state = loading.state;
  uint64_t total = 0;
  const std::vector<Place> places = FERRY_TRY(place_unplanned(loading, total));
  Result<Arena> arena = Arena::allocate(total, loading.budget);
  if (!arena) return state.error(arena.error().code, arena.error().message);
  state.outs = std::move(*arena);
  for (const Place& place : places) {
    place.tensor->data = state.outs.data() + place.offset;
    place.tensor->writable = true;
  }
  // A move may have been recorded before its target got memory.
  for (Rebound& rebound : state.rebound) rebound.home = *rebound.tensor;
  return {};
}

void find_written_numbers(MethodState& state) {
  std::vector<bool> found(state.values.size(), false);
  for (const std::vector<int32_t>& written : state.written) {
    for (const int32_t id : written) {
      kernels::Value& value = state.values[static_cast<size_t>(id)];
      if (!value.is_number() || found[static_cast<size_t>(id)]) continue;
      found[static_cast<size_t>(id)] = true;
      state.written_numbers.push_back({&value, value});
    }
  }
}

// The values that a kernel call reads and writes, including the tensors of lists.
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

// Views and moves change the address of a tensor's memory. Its first address is restored before
// every execution.
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

// Most operators are defined for real numbers only.
Status check_complex(const MethodState& state, const Step& step, size_t index,
                     const std::string& name) {
  if (kernels::takes_complex(name)) return {};
  for (const auto& tensors : {step.inputs, step.outs}) {
    for (const kernels::Tensor* tensor : tensors) {
      if (tensor->dtype != DType::kC64) continue;
      return state.error(ErrorCode::kUnsupported,
                         fmt::format("instruction {} ({}): dtype c64", index, name));
    }
  }
  return {};
}

// Strides are those of the memory of the official runtime. All tensors are row-major here.
Status check_strided(const Loading& loading, const pte::KernelCall& call, size_t index,
                     const std::string& name) {
  if (name != "aten::as_strided_copy.out") return {};
  const pte::Tensor* self = loading.pte_tensor(call.args[0]);
  if (self == nullptr || is_row_major(self->dim_order)) return {};
  return loading.state.error(
      ErrorCode::kUnsupported,
      fmt::format("instruction {} ({}): an order of dimensions other than row-major", index, name));
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
  // An operator also reads the value that it changes, except a copy over all of it.
  for (size_t i = 0; i < schema.args.size() && name != "aten::copy_"; ++i) {
    if (schema.args[i].mutated) loading.reads[index].push_back(call.args[i]);
  }
  step.inputs = append_tensors(loading, uses.read);
  step.outs = append_tensors(loading, uses.written);
  step.args = append_values(state, call.args);
  FERRY_RETURN_IF_ERROR(check_complex(state, step, index, name));
  FERRY_RETURN_IF_ERROR(check_strided(loading, call, index, name));
  for (int32_t id : uses.read) {
    const pte::Tensor* tensor = loading.pte_tensor(id);
    if (tensor != nullptr && tensor->external && !tensor->allocation) {
      state.step_weights[index] = tensor->fqn;
      break;
    }
  }
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
  // A tensor is true where all of its elements are.
  const kernels::Tensor* tensor = step.from->tensor;
  if (tensor != nullptr) loading.reads[index] = {call.condition};
  const bool is_bool = step.from->kind == kernels::Value::Kind::kBool ||
                       (tensor != nullptr && tensor->dtype == DType::kBool);
  if (is_bool && call.destination >= 0 && step.destination <= loading.method.instructions.size()) {
    return {};
  }
  return state.bad(
      fmt::format("a jump to instruction {} on value {}", call.destination, call.condition));
}

// Steps hold references into the lists of values and tensors, so these lists must not move as they
// grow.
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

uint64_t f64_scale(std::span<const pte::Method* const> methods) {
  uint64_t scale = 2;  // f32 to f64
  for (const pte::Method* method : methods) {
    for (const pte::Value& value : method->values) {
      const auto* tensor = std::get_if<pte::Tensor>(&value);
      if (tensor != nullptr && is_half(tensor->dtype) && tensor->allocation) scale = 4;
    }
  }
  return scale;
}

Status check_operators(const pte::Method& method, const MethodState& state) {
  std::vector<std::string> names;
  if (state.f64 && !method.delegates.empty()) {
    return state.error(ErrorCode::kUnsupported, "delegates do not compute in f64");
  }
  for (const pte::Delegate& delegate : method.delegates) {
    if (delegate.backend != xnnpack::kBackend && names.size() < kMaxListed) {
      names.push_back(quoted(delegate.backend));
    }
  }
  if (!names.empty()) {
    return state.error(ErrorCode::kUnsupported,
                       fmt::format("parts are delegated to {}", fmt::join(names, ", ")));
  }
  std::vector<std::string> missing;
  for (const pte::Operator& op : method.operators) {
    const std::string name = op.full_name();
    if (kernels::find_kernel(name) == nullptr || pte::find_op_schema(name) == nullptr) {
      missing.push_back(quoted(name));
    }
  }
  if (missing.empty()) return {};
  Failure report =
      state.error(ErrorCode::kUnsupported,
                  fmt::format("no kernel for {} operators, first {}", missing.size(), missing[0]));
  if (missing.size() > kMaxListed) missing.resize(kMaxListed);
  report.error().details = std::move(missing);
  return report;
}

Result<std::shared_ptr<ProgramMemory>> allocate_memory(std::span<const pte::Method* const> methods,
                                                       MemoryBudget& budget, bool poison,
                                                       uint64_t scale,
                                                       std::span<const uint64_t> untouched) {
  std::vector<uint64_t> sizes;
  for (const pte::Method* method : methods) {
    sizes.resize(std::max(sizes.size(), method->memory_bytes.size()));
    for (size_t id = 0; id < method->memory_bytes.size(); ++id) {
      const std::optional<uint64_t> bytes = checked_mul(method->memory_bytes[id], scale);
      if (!bytes) return fail(ErrorCode::kIo, "the size of planned memory overflows");
      sizes[id] = std::max(sizes[id], *bytes);
    }
  }
  auto memory = std::make_shared<ProgramMemory>();
  for (size_t id = 0; id < sizes.size(); ++id) {
    const uint64_t spared = id < untouched.size() ? untouched[id] : 0;
    memory->arenas.push_back(FERRY_TRY(Arena::allocate(sizes[id], budget, spared)));
  }
  memory->delegates = std::make_shared<DelegateMemory>(poison);
  return memory;
}

Status load_method(const pte::LoadedProgram& program, const pte::Method& method,
                   const std::vector<ExternalTensor>& external, MemoryBudget& budget,
                   MethodState& state) {
  Loading loading{program, method, external, budget, state};
  FERRY_RETURN_IF_ERROR(make_values(loading));
  FERRY_RETURN_IF_ERROR(bind_tensors(loading));
  FERRY_RETURN_IF_ERROR(make_ports(loading));
  FERRY_RETURN_IF_ERROR(make_steps(loading));
  if (!state.literal || state.f64) view_selected_constants(method, state);
  FERRY_RETURN_IF_ERROR(allocate_unplanned(loading));
  find_written_numbers(state);
  if (state.kv_bits) FERRY_RETURN_IF_ERROR(code_caches(loading));
  if (state.literal) return {};
  join_caches(loading);
  leave_out_hidden_columns(loading);
  read_stored_caches(loading);
  join_norms(loading);
  join_gates(loading);
  find_row_outputs(loading);
  return {};
}

Status make_steps(Loading& loading) {
  const size_t count = loading.method.instructions.size();
  loading.state.steps.resize(count);
  loading.state.step_names.resize(count);
  loading.state.step_weights.resize(count);
  loading.state.written.resize(count);
  loading.reads.resize(count);
  loading.unplanned.resize(count);
  reserve_arguments(loading);
  for (size_t i = 0; i < count; ++i) FERRY_RETURN_IF_ERROR(make_step(loading, i));
  return {};
}

}  // namespace ferry::runner
