// Loading a method: values, memory, data and instructions are resolved once. Offers load_method.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "core/checked.h"
#include "core/text.h"
#include "formats/pte/op_schema.h"
#include "runner/constant_views.h"
#include "runner/kernels/dtypes.h"
#include "runner/kernels/kernel.h"
#include "runner/method_state.h"
#include "runner/widened_values.h"

namespace ferry::runner {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kMaxListed = 100;  // offenders that one error lists

class Loader {
 public:
  Loader(const pte::LoadedProgram& program, const pte::Method& method,
         const std::vector<ExternalTensor>& external, MethodState& state)
      : program_(program), method_(method), state_(state) {
    for (const ExternalTensor& tensor : external) external_.emplace(tensor.key, &tensor);
  }

  Status run() {
    FERRY_RETURN_IF_ERROR(check_operators());
    if (state_.widen) widened_ = widened_values(method_);
    FERRY_RETURN_IF_ERROR(allocate());
    FERRY_RETURN_IF_ERROR(make_values());
    FERRY_RETURN_IF_ERROR(bind_tensors());
    FERRY_RETURN_IF_ERROR(make_ports());
    FERRY_RETURN_IF_ERROR(make_steps());
    view_selected_constants(method_, state_);
    FERRY_RETURN_IF_ERROR(allocate_unplanned());
    find_state();
    state_.fill_arenas(true);
    return {};
  }

 private:
  using IndexList = std::vector<int32_t>;

  tl::unexpected<Error> error(ErrorCode code, const std::string& message) const {
    return fail(code, fmt::format("{}: method {}: {}", state_.file, quoted(method_.name), message));
  }
  tl::unexpected<Error> bad(const std::string& message) const {
    return error(ErrorCode::kBadInput, message);
  }

  const pte::Tensor* pte_tensor(int32_t value) const {
    return std::get_if<pte::Tensor>(&method_.values[static_cast<size_t>(value)]);
  }
  kernels::Tensor* tensor(int32_t value) {
    return state_.values[static_cast<size_t>(value)].tensor;
  }

  Status check_operators();
  bool is_widened(int32_t value) const {
    return state_.widen && widened_[static_cast<size_t>(value)];
  }
  Status allocate();
  Status make_values();
  Status make_tensor(const pte::Tensor& from, kernels::Value& to);
  Status bind_tensors();
  Status bind(const pte::Tensor& from, kernels::Tensor& to);
  Status bind_planned(const pte::Tensor& from, kernels::Tensor& to);
  Status bind_constant(std::span<const std::byte> bytes, kernels::Tensor& to);
  Result<std::span<const std::byte>> external_bytes(const pte::Tensor& from,
                                                    const kernels::Tensor& to);
  Status make_ports();
  Status make_steps();
  Status make_kernel_step(const pte::KernelCall& call, size_t index, Step& step);
  Status make_move(const pte::MoveCall& call, Step& step);
  Status make_jump(const pte::JumpFalseCall& call, Step& step);
  Status rebinds(int32_t value);
  Status allocate_unplanned();
  void find_state();
  void mark_state(int32_t value);

  const pte::LoadedProgram& program_;
  const pte::Method& method_;
  MethodState& state_;
  std::unordered_map<std::string_view, const ExternalTensor*> external_;
  std::vector<std::string> missing_;  // external tensors
  std::vector<IndexList> reads_;      // per step: tensor values that it reads
  std::vector<IndexList> unplanned_;  // per step: outs that need memory
  std::vector<size_t> arena_of_;      // per value
  std::vector<bool> widened_;         // per value, where MethodOptions::widen asks for it
};

Status Loader::check_operators() {
  if (!method_.delegates.empty()) {
    std::vector<std::string> names;
    for (const std::string& id : method_.delegates) {
      if (names.size() < kMaxListed) names.push_back(quoted(id));
    }
    return error(ErrorCode::kUnsupported,
                 fmt::format("parts are delegated to {}", fmt::join(names, ", ")));
  }
  std::vector<std::string> missing;
  for (const pte::Operator& op : method_.operators) {
    const std::string name = op.full_name();
    if (kernels::find_kernel(name) == nullptr || pte::find_op_schema(name) == nullptr) {
      missing.push_back(quoted(name));
    }
  }
  if (missing.empty()) return {};
  if (missing.size() > kMaxListed) missing.resize(kMaxListed);
  Error report{ErrorCode::kUnsupported,
               fmt::format("{}: method {}: no kernel for {} operators, first {}", state_.file,
                           quoted(method_.name), missing.size(), missing[0])};
  report.details = std::move(missing);
  return tl::unexpected<Error>(std::move(report));
}

Status Loader::allocate() {
  uint64_t total = 0;
  for (uint64_t bytes : method_.memory_bytes) {
    const std::optional<uint64_t> sum = checked_add(total, bytes);
    if (!sum || *sum > Arena::limit()) {
      return bad(fmt::format("plans more memory than the {} of this machine",
                             human_bytes(Arena::limit())));
    }
    total = *sum;
  }
  const Status room = Arena::check_available(total);
  if (!room) return error(room.error().code, room.error().message);
  for (uint64_t bytes : method_.memory_bytes) {
    Result<Arena> arena = Arena::allocate(bytes);
    if (!arena) return error(arena.error().code, arena.error().message);
    state_.arenas.push_back(std::move(*arena));
  }
  state_.arenas.emplace_back();  // allocate_unplanned()
  state_.holds_state.assign(state_.arenas.size(), false);
  return {};
}

Status Loader::make_tensor(const pte::Tensor& from, kernels::Value& to) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    return error(code, fmt::format("value {}{}{}: {}", to.id, from.fqn.empty() ? "" : " ",
                                   from.fqn.empty() ? "" : quoted(from.fqn), why));
  };
  if (!kernels::is_computable(from.dtype)) {
    return refuse(ErrorCode::kUnsupported, fmt::format("dtype {}", dtype_name(from.dtype)));
  }
  if (from.sizes.size() > kernels::kMaxRank)
    return refuse(ErrorCode::kBadInput, "too many dimensions");
  for (size_t i = 0; i < from.dim_order.size(); ++i) {
    if (from.dim_order[i] != i) {
      return refuse(ErrorCode::kUnsupported, "a dimension order other than row-major");
    }
  }
  kernels::Tensor& tensor = state_.tensors.emplace_back();
  tensor.id = to.id;
  tensor.widened = is_widened(to.id);
  tensor.dtype = tensor.widened ? DType::kF32 : from.dtype;
  tensor.dynamic = from.dynamism != pte::Dynamism::kStatic;
  for (int32_t size : from.sizes) tensor.sizes.push_back(size);
  const std::optional<int64_t> count = checked_numel(tensor.sizes.span());
  const std::optional<int64_t> bytes =
      count ? checked_mul(*count, tensor.element_bytes()) : std::nullopt;
  if (!bytes) return refuse(ErrorCode::kBadInput, "its size overflows");
  tensor.numel = *count;
  tensor.capacity = static_cast<uint64_t>(*bytes);
  to.kind = kernels::Value::Kind::kTensor;
  to.tensor = &tensor;
  state_.bounds[static_cast<size_t>(to.id)] = tensor.sizes;
  return {};
}

Status Loader::make_values() {
  state_.values.resize(method_.values.size());
  state_.bounds.resize(method_.values.size());
  state_.planned.assign(method_.values.size(), false);
  arena_of_.assign(method_.values.size(), 0);
  using Kind = kernels::Value::Kind;
  for (size_t i = 0; i < method_.values.size(); ++i) {
    kernels::Value& to = state_.values[i];
    to.id = static_cast<int32_t>(i);
    const auto items = [&](Kind kind, const IndexList& indices) {
      to.kind = kind;
      for (int32_t index : indices) {
        to.items.push_back(index < 0 ? nullptr : &state_.values[static_cast<size_t>(index)]);
      }
    };
    const pte::Value& from = method_.values[i];
    if (const auto* integer = std::get_if<int64_t>(&from)) {
      to.kind = Kind::kInt;
      to.integer = *integer;
    } else if (const auto* boolean = std::get_if<bool>(&from)) {
      to.kind = Kind::kBool;
      to.boolean = *boolean;
    } else if (const auto* real = std::get_if<double>(&from)) {
      to.kind = Kind::kDouble;
      to.real = *real;
    } else if (const auto* text = std::get_if<std::string>(&from)) {
      to.kind = Kind::kString;
      to.text = *text;
    } else if (const auto* tensor_value = std::get_if<pte::Tensor>(&from)) {
      FERRY_RETURN_IF_ERROR(make_tensor(*tensor_value, to));
    } else if (const auto* ints = std::get_if<pte::IntList>(&from)) {
      items(Kind::kIntList, ints->items);
    } else if (const auto* list = std::get_if<pte::TensorList>(&from)) {
      items(Kind::kTensorList, list->items);
    } else if (const auto* optionals = std::get_if<pte::OptionalTensorList>(&from)) {
      items(Kind::kOptionalTensorList, optionals->items);
    } else if (std::holds_alternative<pte::BoolList>(from)) {
      to.kind = Kind::kBoolList;
    } else if (std::holds_alternative<pte::DoubleList>(from)) {
      to.kind = Kind::kDoubleList;
    }
  }
  return {};
}

Result<std::span<const std::byte>> Loader::external_bytes(const pte::Tensor& from,
                                                          const kernels::Tensor& to) {
  const auto found = external_.find(from.fqn);
  if (found == external_.end()) {
    missing_.push_back(quoted(from.fqn));
    return std::span<const std::byte>();
  }
  const ExternalTensor& tensor = *found->second;
  const bool same_sizes =
      std::equal(tensor.sizes.begin(), tensor.sizes.end(), from.sizes.begin(), from.sizes.end());
  if (tensor.dtype != to.dtype || !same_sizes || tensor.bytes.size() < to.capacity) {
    return bad(fmt::format("external tensor {} is {}[{}] in the data and {}[{}] in the program",
                           quoted(from.fqn), dtype_name(tensor.dtype),
                           fmt::join(tensor.sizes, ", "), dtype_name(to.dtype),
                           fmt::join(from.sizes, ", ")));
  }
  return tensor.bytes.first(to.capacity);
}

Status Loader::bind_constant(std::span<const std::byte> bytes, kernels::Tensor& to) {
  if (bytes.size() < to.capacity) {
    return bad(
        fmt::format("value {}: {} bytes of data, expected {}", to.id, bytes.size(), to.capacity));
  }
  if (!is_aligned(bytes.data(), to.element_bytes())) {
    bytes = state_.copies.emplace_back(bytes.begin(), bytes.begin() + to.capacity);
  }
  // Only written to where Tensor::writable is set.
  to.data = const_cast<std::byte*>(bytes.data());
  return {};
}

Status Loader::bind_planned(const pte::Tensor& from, kernels::Tensor& to) {
  const pte::Allocation& place = *from.allocation;
  const size_t value = static_cast<size_t>(to.id);
  if (place.memory == 0 || place.memory >= method_.memory_bytes.size() ||
      !range_inside(place.offset, to.capacity, method_.memory_bytes[place.memory])) {
    return bad(fmt::format("value {} lies outside of planned memory {}", to.id, place.memory));
  }
  if (place.offset % static_cast<uint64_t>(to.element_bytes()) != 0) {
    return bad(fmt::format("value {} is planned at offset {}, which is not aligned to its {}",
                           to.id, place.offset, dtype_name(to.dtype)));
  }
  to.data = state_.arenas[place.memory].data() + place.offset;
  to.writable = true;
  state_.planned[value] = true;
  arena_of_[value] = place.memory;
  std::span<const std::byte> contents;
  if (from.external) {
    contents = FERRY_TRY(external_bytes(from, to));
  } else if (from.data_index > 0) {
    if (from.data_index >= program_.data.initial.size() ||
        program_.data.initial[from.data_index].size() < to.capacity) {
      return bad(fmt::format("value {} has no initial contents {}", to.id, from.data_index));
    }
    contents = program_.data.initial[from.data_index].first(to.capacity);
  }
  if (!contents.empty()) state_.initial.push_back({place.memory, place.offset, contents});
  if (!contents.empty() || !from.fqn.empty()) mark_state(to.id);
  return {};
}

Status Loader::bind(const pte::Tensor& from, kernels::Tensor& to) {
  if (to.widened) {
    // Its planned memory is too small: the runtime finds some.
  } else if (from.allocation) {
    FERRY_RETURN_IF_ERROR(bind_planned(from, to));
  } else if (from.external) {
    const std::span<const std::byte> bytes = FERRY_TRY(external_bytes(from, to));
    if (!bytes.empty()) FERRY_RETURN_IF_ERROR(bind_constant(bytes, to));
  } else if (from.data_index > 0) {
    if (from.data_index >= program_.data.constants.size()) {
      return bad(fmt::format("value {} has no constant {}", to.id, from.data_index));
    }
    FERRY_RETURN_IF_ERROR(bind_constant(program_.data.constants[from.data_index], to));
  }
  if (to.capacity == 0) to.data = no_bytes();
  return {};
}

Status Loader::bind_tensors() {
  for (kernels::Tensor& to : state_.tensors) FERRY_RETURN_IF_ERROR(bind(*pte_tensor(to.id), to));
  if (missing_.empty()) return {};
  Error report{ErrorCode::kBadInput,
               fmt::format("{}: method {}: {} external tensors are absent from the data files, "
                           "first {}",
                           state_.file, quoted(method_.name), missing_.size(), missing_[0])};
  if (missing_.size() > kMaxListed) missing_.resize(kMaxListed);
  report.details = std::move(missing_);
  return tl::unexpected<Error>(std::move(report));
}

Status Loader::make_ports() {
  state_.inputs = method_.inputs;
  state_.outputs = method_.outputs;
  for (const auto& [name, ports] :
       {std::pair{"input", &state_.inputs}, std::pair{"output", &state_.outputs}}) {
    for (int32_t port : *ports) {
      const kernels::Value& value = state_.values[static_cast<size_t>(port)];
      if (value.kind != kernels::Value::Kind::kTensor && !value.is_number()) {
        return error(ErrorCode::kUnsupported,
                     fmt::format("{} {} is neither a tensor nor a number", name, port));
      }
    }
  }
  state_.input_copies.resize(state_.inputs.size());
  for (int32_t port : state_.inputs) {
    const kernels::Tensor* input = tensor(port);
    // Numbers have the value that the program stores until they are set.
    state_.input_set.push_back(input == nullptr);
    const pte::Tensor* from = pte_tensor(port);
    if (input != nullptr && !from->allocation && (from->external || from->data_index > 0)) {
      return bad(fmt::format("value {} is an input and a constant", port));
    }
  }
  return {};
}

// Views and moves change where a tensor's memory is; what it was at first is restored every time.
Status Loader::rebinds(int32_t value) {
  for (int32_t input : state_.inputs) {
    if (input == value) return bad(fmt::format("value {} is an input and rebound", value));
  }
  kernels::Tensor* target = tensor(value);
  state_.rebound.push_back({target, *target});
  return {};
}

Status Loader::make_kernel_step(const pte::KernelCall& call, size_t index, Step& step) {
  const std::string name = method_.operators[static_cast<size_t>(call.op)].full_name();
  const pte::OpSchema& schema = *pte::find_op_schema(name);
  step.kind = Step::Kind::kKernel;
  step.kernel = kernels::find_kernel(name);
  state_.step_names[index] = name;
  if (call.args.size() != schema.call_args()) {
    return bad(fmt::format("instruction {} ({}) has {} arguments, expected {}", index, name,
                           call.args.size(), schema.call_args()));
  }
  IndexList read;
  IndexList written;
  for (size_t i = 0; i < schema.args.size(); ++i) {
    const bool out = schema.args[i].out || schema.args[i].mutated;
    const kernels::Value& value = state_.values[static_cast<size_t>(call.args[i])];
    if (out || value.tensor != nullptr) (out ? written : read).push_back(value.id);
    for (const kernels::Value* item : value.items) {
      if (item != nullptr && item->tensor != nullptr) (out ? written : read).push_back(item->id);
    }
    // What an operator changes, it also reads, except a copy over all of it.
    if (schema.args[i].mutated && name != "aten::copy_") reads_[index].push_back(value.id);
  }
  reads_[index].insert(reads_[index].end(), read.begin(), read.end());
  const size_t begin = state_.step_tensors.size();
  for (const IndexList* list : {&read, &written}) {
    for (int32_t id : *list) {
      if (tensor(id) != nullptr) state_.step_tensors.push_back(tensor(id));
    }
    if (list == &read)
      step.inputs = {state_.step_tensors.data() + begin, state_.step_tensors.size() - begin};
  }
  const size_t middle = begin + step.inputs.size();
  step.outs = {state_.step_tensors.data() + middle, state_.step_tensors.size() - middle};
  const size_t args_begin = state_.step_values.size();
  for (int32_t id : call.args)
    state_.step_values.push_back(&state_.values[static_cast<size_t>(id)]);
  step.args = {state_.step_values.data() + args_begin, call.args.size()};
  if (step.kernel->memory == kernels::Kernel::Memory::kView) {
    for (int32_t id : written) FERRY_RETURN_IF_ERROR(rebinds(id));
  } else {
    unplanned_[index] = written;
  }
  state_.written[index] = std::move(written);
  return {};
}

Status Loader::make_move(const pte::MoveCall& call, Step& step) {
  step.kind = Step::Kind::kMove;
  step.from = &state_.values[static_cast<size_t>(call.from)];
  step.to = &state_.values[static_cast<size_t>(call.to)];
  if (step.from->kind != step.to->kind ||
      (step.from->tensor == nullptr && !step.from->is_number())) {
    return bad(fmt::format("value {} cannot be moved to value {}", call.from, call.to));
  }
  return step.to->tensor != nullptr ? rebinds(call.to) : Status();
}

Status Loader::make_jump(const pte::JumpFalseCall& call, Step& step) {
  step.kind = Step::Kind::kJumpIfFalse;
  step.from = &state_.values[static_cast<size_t>(call.condition)];
  step.destination = static_cast<size_t>(call.destination);
  if (step.from->kind == kernels::Value::Kind::kBool && call.destination >= 0 &&
      step.destination <= method_.instructions.size()) {
    return {};
  }
  return bad(fmt::format("a jump to instruction {} on value {}", call.destination, call.condition));
}

Status Loader::make_steps() {
  const size_t count = method_.instructions.size();
  state_.steps.resize(count);
  state_.step_names.resize(count);
  state_.written.resize(count);
  reads_.resize(count);
  unplanned_.resize(count);
  // Steps refer into these, so they must not move while they grow.
  size_t values = 0;
  size_t tensors = 0;
  for (const pte::Instruction& instruction : method_.instructions) {
    const auto* call = std::get_if<pte::KernelCall>(&instruction);
    if (call == nullptr) continue;
    values += call->args.size();
    for (int32_t id : call->args) {
      tensors += 1 + state_.values[static_cast<size_t>(id)].items.size();
    }
  }
  state_.step_values.reserve(values);
  state_.step_tensors.reserve(tensors);
  for (size_t i = 0; i < count; ++i) {
    const pte::Instruction& instruction = method_.instructions[i];
    Step& step = state_.steps[i];
    if (const auto* kernel = std::get_if<pte::KernelCall>(&instruction)) {
      FERRY_RETURN_IF_ERROR(make_kernel_step(*kernel, i, step));
    } else if (const auto* move = std::get_if<pte::MoveCall>(&instruction)) {
      state_.step_names[i] = "move";
      state_.written[i] = {move->to};
      reads_[i] = {move->from};
      FERRY_RETURN_IF_ERROR(make_move(*move, step));
    } else if (const auto* jump = std::get_if<pte::JumpFalseCall>(&instruction)) {
      state_.step_names[i] = "jump";
      FERRY_RETURN_IF_ERROR(make_jump(*jump, step));
    } else if (std::holds_alternative<pte::DelegateCall>(instruction)) {
      return error(ErrorCode::kUnsupported, fmt::format("instruction {} is delegated", i));
    }
  }
  return {};
}

// Memory for tensors that a kernel writes and the program leaves to the runtime.
Status Loader::allocate_unplanned() {
  std::vector<std::pair<kernels::Tensor*, uint64_t>> places;
  uint64_t total = 0;
  for (const IndexList& outs : unplanned_) {
    for (int32_t id : outs) {
      kernels::Tensor* out = tensor(id);
      if (out == nullptr || out->data != nullptr || state_.planned[static_cast<size_t>(id)]) {
        continue;
      }
      const auto is_input = std::find(state_.inputs.begin(), state_.inputs.end(), id);
      if (is_input != state_.inputs.end()) {
        return bad(fmt::format("value {} is an input without memory of its own and written", id));
      }
      state_.planned[static_cast<size_t>(id)] = true;
      arena_of_[static_cast<size_t>(id)] = state_.arenas.size() - 1;
      places.emplace_back(out, total);
      const std::optional<uint64_t> sum = checked_add(total, out->capacity + kAlignment);
      if (!sum || *sum > Arena::limit()) return bad("its outputs do not fit this machine's memory");
      total = align_up(*sum - kAlignment, kAlignment);
    }
  }
  const Status room = Arena::check_available(total);
  if (!room) return error(room.error().code, room.error().message);
  Result<Arena> arena = Arena::allocate(total);
  if (!arena) return error(arena.error().code, arena.error().message);
  for (const auto& [out, offset] : places) {
    out->data = arena->data() + offset;
    out->writable = true;
  }
  state_.arenas.back() = std::move(*arena);
  // A move may have been seen before its target got memory.
  for (Rebound& rebound : state_.rebound) rebound.home = *rebound.tensor;
  return {};
}

void Loader::mark_state(int32_t value) {
  state_.holds_state[arena_of_[static_cast<size_t>(value)]] = true;
}

// A tensor that is read before it is written in the order of the instructions is kept from one
// execution to the next.
void Loader::find_state() {
  std::vector<bool> written(state_.values.size(), false);
  for (int32_t input : state_.inputs) written[static_cast<size_t>(input)] = true;
  for (size_t i = 0; i < state_.steps.size(); ++i) {
    for (int32_t value : reads_[i]) {
      const size_t v = static_cast<size_t>(value);
      if (state_.planned[v] && !written[v]) mark_state(value);
    }
    for (int32_t value : state_.written[i]) written[static_cast<size_t>(value)] = true;
  }
}

}  // namespace

Status load_method(const pte::LoadedProgram& program, const pte::Method& method,
                   const std::vector<ExternalTensor>& external, MethodState& state) {
  state.method = method.name;
  return Loader(program, method, external, state).run();
}

}  // namespace ferry::runner
