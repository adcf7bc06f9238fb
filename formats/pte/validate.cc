// What a FlatBuffers verifier cannot know: that indices, sizes and instructions make sense
// together.
#include "formats/pte/validate.h"

#include <fmt/format.h>

#include <set>

#include "core/checked.h"
#include "core/text.h"
#include "formats/pte/op_schema.h"

namespace ferry::pte {

namespace {

bool is_constant(const Tensor& tensor) {
  return !tensor.allocation && (tensor.external || tensor.data_index > 0);
}
bool is_unplanned(const Tensor& tensor) { return !tensor.allocation && !is_constant(tensor); }

bool is_permutation(const std::vector<uint8_t>& order) {
  uint32_t seen = 0;
  for (uint8_t dim : order) {
    if (dim >= order.size() || (seen >> dim & 1) != 0) return false;
    seen |= uint32_t{1} << dim;
  }
  return true;
}

bool matches(const Value& value, const ArgSchema& arg) {
  if (std::holds_alternative<None>(value)) return arg.optional;
  switch (arg.kind) {
    case ArgKind::kTensor:
      return std::holds_alternative<Tensor>(value);
    case ArgKind::kTensorList:
      return std::holds_alternative<TensorList>(value);
    case ArgKind::kOptionalTensorList:
      return std::holds_alternative<OptionalTensorList>(value);
    case ArgKind::kInt:
      return std::holds_alternative<int64_t>(value);
    case ArgKind::kIntList:
      return std::holds_alternative<IntList>(value);
    case ArgKind::kFloat:
      return std::holds_alternative<double>(value);
    case ArgKind::kBool:
      return std::holds_alternative<bool>(value);
    case ArgKind::kScalar:
      return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value) ||
             std::holds_alternative<bool>(value);
    case ArgKind::kString:
      return std::holds_alternative<std::string>(value);
    case ArgKind::kBoolList:
      return std::holds_alternative<BoolList>(value);
  }
  return false;
}

class MethodCheck {
 public:
  MethodCheck(const Method& method, const DataSizes& extents, const std::string& file)
      : method_(method), extents_(extents), file_(file) {}

  Status run() {
    FERRY_CHECK(check_memory());
    FERRY_CHECK(check_ports());
    for (size_t i = 0; i < method_.values.size(); ++i) FERRY_CHECK(check_value(i));
    for (const Operator& op : method_.operators) schemas_.push_back(find_op_schema(op.full_name()));
    for (size_t i = 0; i < method_.instructions.size(); ++i) FERRY_CHECK(check_instruction(i));
    return check_sources();
  }

 private:
  // -- messages --
  auto method_error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code, fmt::format("{}: method {}: {}", file_, quoted(method_.name), what));
  }
  auto value_error(size_t index, const std::string& what,
                   ErrorCode code = ErrorCode::kBadInput) const {
    const auto* tensor = std::get_if<Tensor>(&method_.values[index]);
    const std::string fqn =
        tensor && !tensor->fqn.empty() ? fmt::format(" (tensor {})", quoted(tensor->fqn)) : "";
    return method_error(fmt::format("value {}: {}{}", index, what, fqn), code);
  }
  auto step_error(size_t index, const std::string& what,
                  ErrorCode code = ErrorCode::kBadInput) const {
    std::string op;
    if (const auto* call = std::get_if<KernelCall>(&method_.instructions[index])) {
      if (static_cast<size_t>(call->op) < method_.operators.size()) {
        op = fmt::format(" ({})",
                         quoted(method_.operators[static_cast<size_t>(call->op)].full_name()));
      }
    }
    return method_error(fmt::format("instruction {}{}: {}", index, op, what), code);
  }

  // -- helpers --
  bool is_value(int32_t index) const {
    return index >= 0 && static_cast<size_t>(index) < method_.values.size();
  }
  template <class T>
  const T* get(int32_t index) const {
    return is_value(index) ? std::get_if<T>(&method_.values[static_cast<size_t>(index)]) : nullptr;
  }
  bool is_input(int32_t index) const { return (role_[static_cast<size_t>(index)] & kInput) != 0; }
  bool is_output(int32_t index) const { return (role_[static_cast<size_t>(index)] & kOutput) != 0; }

  Status check_memory() const {
    const auto& sizes = method_.memory_bytes;
    if (sizes.empty() || sizes[0] != 0) return method_error("planned memory 0 is reserved");
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] > kMaxMemoryBytes) {
        return method_error(fmt::format("planned memory {} of {} bytes", i, sizes[i]));
      }
    }
    return {};
  }

  Status check_ports() {
    role_.assign(method_.values.size(), 0);
    for (auto [ports, bit, kind] : {std::tuple(&method_.inputs, kInput, "input"),
                                    std::tuple(&method_.outputs, kOutput, "output")}) {
      for (int32_t index : *ports) {
        if (!is_value(index)) {
          return method_error(fmt::format("{} is value {} of {}", kind, index, role_.size()));
        }
        role_[static_cast<size_t>(index)] |= bit;
        const auto* tensor = get<Tensor>(index);
        if (bit == kInput && tensor && is_constant(*tensor)) {
          return value_error(static_cast<size_t>(index), "an input is a constant");
        }
      }
    }
    return {};
  }

  // -- values --
  Status check_value(size_t index) const {
    const Value& value = method_.values[index];
    if (const auto* tensor = std::get_if<Tensor>(&value)) return check_tensor(index, *tensor);
    if (const auto* list = std::get_if<IntList>(&value)) {
      for (int32_t item : list->items) {
        if (!get<int64_t>(item)) {
          return value_error(index, fmt::format("list item {} is no Int value", item));
        }
      }
    }
    if (const auto* list = std::get_if<TensorList>(&value)) {
      return check_tensor_list(index, list->items, 0);
    }
    if (const auto* list = std::get_if<OptionalTensorList>(&value)) {
      return check_tensor_list(index, list->items, -1);
    }
    return {};
  }

  // The runtime resolves lists in order, so tensors come before the lists that hold them.
  Status check_tensor_list(size_t index, const std::vector<int32_t>& items, int32_t lowest) const {
    for (int32_t item : items) {
      if (item == -1 && lowest == -1) continue;
      if (!get<Tensor>(item) || static_cast<size_t>(item) >= index) {
        return value_error(index, fmt::format("list item {} is no earlier Tensor value", item));
      }
    }
    return {};
  }

  Status check_tensor(size_t index, const Tensor& tensor) const {
    if (tensor.sizes.size() != tensor.dim_order.size()) {
      return value_error(index, fmt::format("{} sizes and {} dimensions in order",
                                            tensor.sizes.size(), tensor.dim_order.size()));
    }
    if (tensor.sizes.size() > kMaxRank) {
      return value_error(index, fmt::format("rank {}", tensor.sizes.size()));
    }
    for (int32_t size : tensor.sizes) {
      if (size < 0) return value_error(index, fmt::format("dimension {}", size));
    }
    if (!is_permutation(tensor.dim_order)) {
      return value_error(index, "the order of dimensions is no permutation");
    }
    const auto bytes = tensor_bytes(tensor);
    if (!bytes) return value_error(index, "its size overflows");
    if (tensor.external && tensor.fqn.empty()) {
      return value_error(index, "an external tensor without a name");
    }
    return check_storage(index, tensor, *bytes);
  }

  Status check_storage(size_t index, const Tensor& tensor, uint64_t bytes) const {
    if (tensor.allocation) {
      const auto [memory, offset] = *tensor.allocation;
      if (memory == 0 || memory >= method_.memory_bytes.size()) {
        return value_error(
            index, fmt::format("in planned memory {} of {}", memory, method_.memory_bytes.size()));
      }
      if (!range_inside(offset, bytes, method_.memory_bytes[memory])) {
        return value_error(index, fmt::format("{} bytes at {} exceed the {} of planned memory {}",
                                              bytes, offset, method_.memory_bytes[memory], memory));
      }
    }
    if (tensor.external || tensor.data_index == 0) return {};
    const auto& extents = tensor.allocation ? extents_.initial : extents_.constants;
    const char* what = tensor.allocation ? "initial contents" : "constant";
    if (tensor.data_index >= extents.size()) {
      return value_error(index,
                         fmt::format("{} {} of {}", what, tensor.data_index, extents.size()));
    }
    if (bytes > extents[tensor.data_index]) {
      return value_error(index, fmt::format("{} bytes, {} {} has {}", bytes, what,
                                            tensor.data_index, extents[tensor.data_index]));
    }
    return {};
  }

  // -- instructions --
  Status check_instruction(size_t index) {
    const Instruction& step = method_.instructions[index];
    if (const auto* call = std::get_if<KernelCall>(&step)) return check_kernel_call(index, *call);
    if (const auto* call = std::get_if<DelegateCall>(&step)) {
      if (call->delegate < 0 || static_cast<size_t>(call->delegate) >= method_.delegates.size()) {
        return step_error(
            index, fmt::format("delegate {} of {}", call->delegate, method_.delegates.size()));
      }
      return check_args(index, call->args);
    }
    if (const auto* move = std::get_if<MoveCall>(&step)) return check_move(index, *move);
    if (const auto* jump = std::get_if<JumpFalseCall>(&step)) return check_jump(index, *jump);
    const int32_t freed = std::get<FreeCall>(step).value;
    if (!get<Tensor>(freed)) {
      return step_error(index, fmt::format("frees value {}, which is no tensor", freed));
    }
    return {};
  }

  Status check_args(size_t index, const std::vector<int32_t>& args) const {
    for (int32_t arg : args) {
      if (!is_value(arg)) {
        return step_error(index, fmt::format("argument is value {} of {}", arg, role_.size()));
      }
    }
    return {};
  }

  // A move must not turn a value into another kind, or make a tensor larger than planned for.
  Status check_move(size_t index, const MoveCall& move) {
    if (!is_value(move.from) || !is_value(move.to)) {
      return step_error(
          index, fmt::format("moves value {} to {} of {}", move.from, move.to, role_.size()));
    }
    const Value& from = method_.values[static_cast<size_t>(move.from)];
    const Value& to = method_.values[static_cast<size_t>(move.to)];
    if (from.index() != to.index()) {
      return step_error(index,
                        fmt::format("moves value {} to {}, of another kind", move.from, move.to));
    }
    if (const auto* source = std::get_if<Tensor>(&from)) {
      const auto& target = std::get<Tensor>(to);
      if (source->dtype != target.dtype || source->sizes != target.sizes || is_constant(target)) {
        return step_error(
            index, fmt::format("moves tensor {} to {}, of another shape", move.from, move.to));
      }
      role_[static_cast<size_t>(move.to)] |= kMade;
    }
    return {};
  }

  Status check_jump(size_t index, const JumpFalseCall& jump) const {
    const auto* tensor = get<Tensor>(jump.condition);
    if (!get<bool>(jump.condition) && !(tensor && tensor->dtype == DType::kBool)) {
      return step_error(index,
                        fmt::format("condition is value {}, which is no Bool", jump.condition));
    }
    if (jump.destination < 0 ||
        static_cast<size_t>(jump.destination) > method_.instructions.size()) {
      return step_error(
          index, fmt::format("jumps to {} of {}", jump.destination, method_.instructions.size()));
    }
    return {};
  }

  Status check_kernel_call(size_t index, const KernelCall& call) {
    if (call.op < 0 || static_cast<size_t>(call.op) >= method_.operators.size()) {
      return step_error(index, fmt::format("operator {} of {}", call.op, method_.operators.size()));
    }
    FERRY_CHECK(check_args(index, call.args));
    const OpSchema* schema = schemas_[static_cast<size_t>(call.op)];
    if (schema == nullptr) {
      // Nothing is known of it, so anything it gets may be what it makes.
      for (int32_t arg : call.args) role_[static_cast<size_t>(arg)] |= kMade;
      return {};
    }
    if (call.args.size() != schema->call_args()) {
      return step_error(
          index, fmt::format("{} arguments, expected {}", call.args.size(), schema->call_args()));
    }
    for (size_t i = 0; i < schema->args.size(); ++i) {
      FERRY_CHECK(check_arg(index, schema->args[i], call.args[i]));
    }
    FERRY_CHECK(check_result(index, *schema, call.args));
    if (schema->name == "executorch_prim::et_view") return check_view(index, call.args);
    return check_written(index, *schema, call.args);
  }

  Status check_arg(size_t index, const ArgSchema& arg, int32_t value) const {
    if (matches(method_.values[static_cast<size_t>(value)], arg)) return {};
    return step_error(index,
                      fmt::format("argument '{}' is value {}, of the wrong kind", arg.name, value));
  }

  Status check_result(size_t index, const OpSchema& schema,
                      const std::vector<int32_t>& args) const {
    if (schema.result == ResultStyle::kTrailingOut) return {};
    if (schema.result == ResultStyle::kRepeatSelf) {
      return args.back() == args[0] ? Status()
                                    : step_error(index, "its result is not its first argument");
    }
    size_t first_out = 0;
    while (!schema.args[first_out].out) ++first_out;
    const std::vector<int32_t> outs(args.begin() + static_cast<ptrdiff_t>(first_out),
                                    args.end() - 1);
    const auto* result = get<TensorList>(args.back());
    const auto* out_list = get<TensorList>(outs[0]);
    const bool same = out_list           ? result && result->items == out_list->items
                      : outs.size() == 1 ? args.back() == outs[0]
                                         : result && result->items == outs;
    return same ? Status() : step_error(index, "its result is not what it writes");
  }

  // A view has its input's bytes and may not claim more of them.
  Status check_view(size_t index, const std::vector<int32_t>& args) {
    const auto& self = std::get<Tensor>(method_.values[static_cast<size_t>(args[0])]);
    const auto& out = std::get<Tensor>(method_.values[static_cast<size_t>(args[2])]);
    if (out.dtype != self.dtype || *tensor_bytes(out) > *tensor_bytes(self)) {
      return step_error(index, "the view is larger than its tensor, or of another dtype");
    }
    if (is_constant(out) || is_input(args[2])) {
      return step_error(index, fmt::format("writes value {}, a constant or input", args[2]));
    }
    role_[static_cast<size_t>(args[2])] |= kMade;
    return {};
  }

  Status check_written(size_t index, const OpSchema& schema, const std::vector<int32_t>& args) {
    for (size_t i = 0; i < schema.args.size(); ++i) {
      if (!schema.args[i].out && !schema.args[i].mutated) continue;
      if (const auto* list = get<TensorList>(args[i])) {
        for (int32_t item : list->items) FERRY_CHECK(check_writable(index, item));
      } else if (get<Tensor>(args[i])) {
        FERRY_CHECK(check_writable(index, args[i]));
      }
    }
    return {};
  }

  Status check_writable(size_t index, int32_t value) {
    const auto& tensor = *get<Tensor>(value);
    if (tensor.allocation) return {};
    if (is_constant(tensor)) {
      return step_error(index, fmt::format("writes value {}, a constant", value));
    }
    if (is_input(value)) {
      return step_error(index,
                        fmt::format("writes value {}, an input in the caller's memory", value),
                        ErrorCode::kUnsupported);
    }
    if (!is_output(value)) {
      return step_error(index, fmt::format("writes value {}, which has no memory", value));
    }
    return {};
  }

  // A tensor without memory is handed in, handed out or made by a view.
  Status check_sources() const {
    for (size_t i = 0; i < method_.values.size(); ++i) {
      const auto* tensor = std::get_if<Tensor>(&method_.values[i]);
      if (tensor && is_unplanned(*tensor) && role_[i] == 0) {
        return value_error(i, "a tensor without memory that nothing provides");
      }
    }
    return {};
  }

  static constexpr uint8_t kInput = 1, kOutput = 2, kMade = 4;

  const Method& method_;
  const DataSizes& extents_;
  const std::string& file_;
  std::vector<uint8_t> role_;             // of each value
  std::vector<const OpSchema*> schemas_;  // of each operator
};

}  // namespace

Status validate_program(const Program& program, const DataSizes& extents, const std::string& name) {
  if (program.methods.empty()) return bad_input(name + ": no method");
  std::set<std::string_view> names;
  for (const Method& method : program.methods) {
    if (method.name.empty()) return bad_input(name + ": a method without a name");
    if (!names.insert(method.name).second) {
      return bad_input(fmt::format("{}: two methods {}", name, quoted(method.name)));
    }
    FERRY_CHECK(MethodCheck(method, extents, name).run());
  }
  return {};
}

}  // namespace ferry::pte
