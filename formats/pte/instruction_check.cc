#include "formats/pte/validate.h"

#include <fmt/format.h>

#include "core/text.h"
#include "formats/pte/decode.h"
#include "formats/pte/op_schema.h"

namespace ferry::pte {

namespace {

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
    case ArgKind::kFloatList:
      return std::holds_alternative<DoubleList>(value);
  }
  return false;
}

class InstructionCheck {
 public:
  InstructionCheck(const Method& method, const std::string& file)
      : method_(method), file_(file), role_(method.values.size(), 0) {
    for (int32_t index : method.inputs) role(index) |= kInput;
    for (int32_t index : method.outputs) role(index) |= kOutput;
    for (const Operator& op : method.operators) schemas_.push_back(find_op_schema(op.full_name()));
  }

  Status run() {
    for (size_t i = 0; i < method_.instructions.size(); ++i)
      FERRY_RETURN_IF_ERROR(check_instruction(i));
    return check_roles();
  }

 private:
  // How the method uses a value.
  static constexpr uint8_t kInput = 1, kOutput = 2, kView = 4, kWritten = 8, kUnknown = 16,
                           kDelegated = 32;

  auto error(size_t index, const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    std::string op;
    if (const auto* call = std::get_if<KernelCall>(&method_.instructions[index])) {
      if (static_cast<size_t>(call->op) < method_.operators.size()) {
        const Operator& known = method_.operators[static_cast<size_t>(call->op)];
        op = fmt::format(" ({})", quoted(known.full_name()));
      }
    }
    return fail(code, fmt::format("{}: method {}: instruction {}{}: {}", file_,
                                  short_quoted(method_.name), index, op, what));
  }

  // The message names the tensor and not the operator, because both would make a long line.
  auto write_error(size_t index, int32_t written, const char* what,
                   ErrorCode code = ErrorCode::kBadInput) const {
    const Tensor& tensor = *get<Tensor>(written);
    const std::string name =
        tensor.fqn.empty() ? "" : fmt::format(" (tensor {})", quoted(tensor.fqn));
    return fail(code, fmt::format("{}: method {}: instruction {}: writes value {}, {}{}", file_,
                                  short_quoted(method_.name), index, written, what, name));
  }

  bool is_value(int32_t index) const {
    return index >= 0 && static_cast<size_t>(index) < method_.values.size();
  }
  const Value& value(int32_t index) const { return method_.values[static_cast<size_t>(index)]; }
  template <class T>
  const T* get(int32_t index) const {
    return is_value(index) ? std::get_if<T>(&value(index)) : nullptr;
  }
  uint8_t& role(int32_t index) { return role_[static_cast<size_t>(index)]; }

  Status check_instruction(size_t index) {
    const Instruction& step = method_.instructions[index];
    if (const auto* call = std::get_if<KernelCall>(&step)) return check_kernel_call(index, *call);
    if (const auto* call = std::get_if<DelegateCall>(&step)) {
      return check_delegate_call(index, *call);
    }
    if (const auto* move = std::get_if<MoveCall>(&step)) return check_move(index, *move);
    if (const auto* jump = std::get_if<JumpFalseCall>(&step)) return check_jump(index, *jump);
    const int32_t freed = std::get<FreeCall>(step).value;
    if (!get<Tensor>(freed)) {
      return error(index, fmt::format("frees value {}, which is no tensor", freed));
    }
    return {};
  }

  // Which of its arguments a delegate writes is stated in its blob only.
  Status check_delegate_call(size_t index, const DelegateCall& call) {
    if (call.delegate < 0 || static_cast<size_t>(call.delegate) >= method_.delegates.size()) {
      return error(index,
                   fmt::format("delegate {} of {}", call.delegate, method_.delegates.size()));
    }
    FERRY_RETURN_IF_ERROR(check_args(index, call.args));
    for (int32_t arg : call.args) role(arg) |= kDelegated;
    return {};
  }

  Status check_args(size_t index, const std::vector<int32_t>& args) const {
    for (int32_t arg : args) {
      if (!is_value(arg)) {
        return error(index, fmt::format("argument is value {} of {}", arg, role_.size()));
      }
    }
    return {};
  }

  // A move must not turn a value into another kind, nor a tensor into one of another size in
  // memory.
  Status check_move(size_t index, const MoveCall& move) const {
    if (!is_value(move.from) || !is_value(move.to)) {
      return error(index,
                   fmt::format("moves value {} to {} of {}", move.from, move.to, role_.size()));
    }
    if (value(move.from).index() != value(move.to).index()) {
      return error(index, fmt::format("moves value {} to {}, of another kind", move.from, move.to));
    }
    const auto* from = get<Tensor>(move.from);
    const auto* to = get<Tensor>(move.to);
    if (from && (from->dtype != to->dtype || from->sizes != to->sizes || !from->allocation ||
                 !to->allocation)) {
      return error(index, fmt::format("moves tensor {} to {}, of another shape or not planned",
                                      move.from, move.to));
    }
    return {};
  }

  Status check_jump(size_t index, const JumpFalseCall& jump) const {
    const auto* tensor = get<Tensor>(jump.condition);
    if (!get<bool>(jump.condition) && !(tensor && tensor->dtype == DType::kBool)) {
      return error(index, fmt::format("condition is value {}, which is no Bool", jump.condition));
    }
    if (jump.destination < 0 ||
        static_cast<size_t>(jump.destination) > method_.instructions.size()) {
      return error(index,
                   fmt::format("jumps to {} of {}", jump.destination, method_.instructions.size()));
    }
    return {};
  }

  Status check_kernel_call(size_t index, const KernelCall& call) {
    if (call.op < 0 || static_cast<size_t>(call.op) >= method_.operators.size()) {
      return error(index, fmt::format("operator {} of {}", call.op, method_.operators.size()));
    }
    FERRY_RETURN_IF_ERROR(check_args(index, call.args));
    const OpSchema* schema = schemas_[static_cast<size_t>(call.op)];
    if (schema == nullptr) {
      // An unknown operator may write any of its arguments.
      for (int32_t arg : call.args) role(arg) |= kUnknown;
      return {};
    }
    if (call.args.size() != schema->call_args()) {
      return error(index,
                   fmt::format("{} arguments, expected {}", call.args.size(), schema->call_args()));
    }
    for (size_t i = 0; i < schema->args.size(); ++i) {
      FERRY_RETURN_IF_ERROR(check_arg(index, schema->args[i], call.args[i]));
    }
    FERRY_RETURN_IF_ERROR(check_result(index, *schema, call.args));
    if (schema->name == "executorch_prim::et_view") return check_view(index, call.args);
    return check_written(index, *schema, call.args);
  }

  Status check_arg(size_t index, const ArgSchema& arg, int32_t given) const {
    if (matches(value(given), arg)) return {};
    return error(index,
                 fmt::format("argument '{}' is value {}, of the wrong kind", arg.name, given));
  }

  Status check_result(size_t index, const OpSchema& schema,
                      const std::vector<int32_t>& args) const {
    if (schema.result == ResultStyle::kTrailingOut) return {};
    if (schema.result == ResultStyle::kRepeatSelf) {
      return args.back() == args[0] ? Status()
                                    : error(index, "its result is not its first argument");
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
    return same ? Status() : error(index, "its result is not what it writes");
  }

  // A view has the dtype of its input, may not claim more bytes than the input has, and is planned
  // at the address of the input. Therefore a tensor with an allocation is planned memory forever,
  // and may be written.
  Status check_view(size_t index, const std::vector<int32_t>& args) {
    const Tensor& self = *get<Tensor>(args[0]);
    const Tensor& out = *get<Tensor>(args[2]);
    if (out.dtype != self.dtype || *tensor_bytes(out) > *tensor_bytes(self)) {
      return error(index, "the view is larger than its tensor, or of another dtype");
    }
    if (is_constant(out) || (!out.allocation && (role(args[2]) & kInput) != 0)) {
      return write_error(index, args[2], "a constant or input");
    }
    if (out.allocation && out.allocation != self.allocation) {
      return error(index, "the view is planned elsewhere than its tensor");
    }
    role(args[2]) |= kView;
    return {};
  }

  Status check_written(size_t index, const OpSchema& schema, const std::vector<int32_t>& args) {
    for (size_t i = 0; i < schema.args.size(); ++i) {
      if (!schema.args[i].out && !schema.args[i].mutated) continue;
      if (const auto* list = get<TensorList>(args[i])) {
        for (int32_t item : list->items) FERRY_RETURN_IF_ERROR(check_writable(index, item));
      } else if (get<Tensor>(args[i])) {
        FERRY_RETURN_IF_ERROR(check_writable(index, args[i]));
      }
    }
    return {};
  }

  Status check_writable(size_t index, int32_t written) {
    const Tensor& tensor = *get<Tensor>(written);
    if (is_constant(tensor)) return write_error(index, written, "a constant");
    if (!tensor.allocation && (role(written) & kInput) != 0) {
      return write_error(index, written, "an input in the caller's memory",
                         ErrorCode::kUnsupported);
    }
    role(written) |= kWritten;
    return {};
  }

  // A tensor without memory is an input, an output, or the result of a view. If it is written, it
  // must be an output and not the result of a view, because the bytes of a view may be those of a
  // constant.
  Status check_roles() const {
    for (size_t i = 0; i < method_.values.size(); ++i) {
      const auto* tensor = std::get_if<Tensor>(&method_.values[i]);
      if (!tensor || tensor->allocation || is_constant(*tensor)) continue;
      const bool written = (role_[i] & kWritten) != 0;
      const bool writable = (role_[i] & kOutput) != 0 && (role_[i] & (kView | kUnknown)) == 0;
      if (role_[i] == 0 || (written && !writable)) {
        return bad_input(fmt::format("{}: method {}: value {}: a tensor without memory that {}",
                                     file_, short_quoted(method_.name), i,
                                     written ? "is written" : "nothing provides"));
      }
    }
    return {};
  }

  const Method& method_;
  const std::string& file_;
  std::vector<uint8_t> role_;  // one for each value
  std::vector<const OpSchema*>
      schemas_;  // one for each operator; nullptr if the operator is unknown
};

}  // namespace

Status check_instructions(const Method& method, const std::string& file) {
  return InstructionCheck(method, file).run();
}

}  // namespace ferry::pte
