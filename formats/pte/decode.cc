#include "formats/pte/decode.h"

#include <fmt/format.h>

#include <map>

#include "core/text.h"
#include "formats/pte/flat_file.h"
#include "program_generated.h"

namespace ferry::pte {

namespace {

using Int32s = flatbuffers::Vector<int32_t>;

class Decoder {
 public:
  // Parts of a FlatBuffer may be shared legally, which could make the copy far larger than the
  // file; what is copied is therefore limited to a few times the file.
  Decoder(size_t flat_bytes, const std::string& file) : budget_(4 * flat_bytes), file_(file) {}

  Result<DecodedProgram> decode(const wire::Program& root) {
    if (root.version() != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: program version {}", file_, root.version()));
    }
    if (root.plans() == nullptr) return bad_input(file_ + ": no method");
    Program program;
    for (const wire::Plan* plan : *root.plans()) {
      method_ = plan->name() ? plan->name()->str() : "";
      program.methods.push_back(FERRY_TRY(decode_method(*plan)));
    }
    FERRY_RETURN_IF_ERROR(decode_named_data(root, program));
    return DecodedProgram{std::move(program), std::move(places_)};
  }

 private:
  // -- messages
  Failure error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code, fmt::format("{}: method {}: {}", file_, short_quoted(method_), what));
  }
  Failure absent(const char* what) const { return error(fmt::format("no {}", what)); }
  Failure value_error(size_t index, const std::string& what, const std::string& fqn = "",
                      ErrorCode code = ErrorCode::kBadInput) const {
    const std::string named = fqn.empty() ? "" : fmt::format(" (tensor {})", quoted(fqn));
    return error(fmt::format("value {}: {}{}", index, what, named), code);
  }

  // -- pieces
  Status spend(uint64_t bytes) {
    if (bytes > budget_) return error("its parts are larger than the file");
    budget_ -= bytes;
    return {};
  }

  template <class To, class From>
  Result<std::vector<To>> list(const flatbuffers::Vector<From>* vector, const char* what) {
    if (vector == nullptr) return absent(what);
    FERRY_RETURN_IF_ERROR(spend(uint64_t{vector->size()} * sizeof(From)));
    return ferry::wire::copy_vector<To>(vector);
  }

  Result<std::string> text(const flatbuffers::String* string, const char* what) {
    if (string == nullptr) return absent(what);
    FERRY_RETURN_IF_ERROR(spend(string->size()));
    return string->str();
  }

  Result<Method> decode_method(const wire::Plan& plan) {
    Method method;
    method.name = FERRY_TRY(text(plan.name(), "name"));
    method.inputs = FERRY_TRY(list<int32_t>(plan.inputs(), "inputs"));
    method.outputs = FERRY_TRY(list<int32_t>(plan.outputs(), "outputs"));
    FERRY_RETURN_IF_ERROR(decode_values(plan, method));
    FERRY_RETURN_IF_ERROR(decode_memory(plan, method));
    FERRY_RETURN_IF_ERROR(decode_operators(plan, method));
    FERRY_RETURN_IF_ERROR(decode_steps(plan, method));
    return method;
  }

  Status decode_memory(const wire::Plan& plan, Method& method) {
    for (int64_t bytes : FERRY_TRY(list<int64_t>(plan.memory_bytes(), "sizes of planned memory"))) {
      if (bytes < 0) return error(fmt::format("planned memory of {} bytes", bytes));
      method.memory_bytes.push_back(static_cast<uint64_t>(bytes));
    }
    if (plan.memory_devices() == nullptr) return {};
    for (const wire::MemoryDevice* device : *plan.memory_devices()) {
      if (device->device_type() != 0) {
        return error(fmt::format("planned memory on device type {}", device->device_type()),
                     ErrorCode::kUnsupported);
      }
    }
    return {};
  }

  Status decode_operators(const wire::Plan& plan, Method& method) {
    if (plan.operators() == nullptr) return absent("operators");
    if (plan.delegates() == nullptr) return absent("delegates");
    for (const wire::OperatorName* op : *plan.operators()) {
      Operator& out = method.operators.emplace_back();
      out.name = FERRY_TRY(text(op->name(), "name of an operator"));
      if (op->overload()) out.overload = FERRY_TRY(text(op->overload(), "overload"));
    }
    for (const wire::Delegate* delegate : *plan.delegates()) {
      method.delegates.push_back(FERRY_TRY(decode_delegate(*delegate)));
    }
    return {};
  }

  // -- delegates
  Result<Delegate> decode_delegate(const wire::Delegate& in) {
    Delegate out;
    out.backend = FERRY_TRY(text(in.id(), "id of a delegate"));
    if (in.blob() == nullptr) return absent("data of a delegate");
    const auto location = static_cast<int>(in.blob()->location());
    if (location != 0 && location != 1) {
      return error(fmt::format("data of a delegate in location {}", location));
    }
    out.data = index_of({location == 1, in.blob()->index()}, delegate_data_, places_.delegates);
    return out;
  }

  Status decode_named_data(const wire::Program& root, Program& program) {
    if (root.named_data() == nullptr) return {};
    for (const wire::NamedBlob* blob : *root.named_data()) {
      if (blob->key() == nullptr) return bad_input(file_ + ": named data without a key");
      // Blobs may share a key, so the copies count against the budget.
      if (blob->key()->size() > budget_) return bad_input(file_ + ": keys larger than the file");
      budget_ -= blob->key()->size();
      program.named_data.push_back(
          {blob->key()->str(), index_of(blob->segment(), named_data_, places_.named)});
    }
    return {};
  }

  // Numbers places in the order in which they first occur.
  template <class Place>
  static uint32_t index_of(const Place& place, std::map<Place, uint32_t>& known,
                           std::vector<Place>& places) {
    const auto [entry, is_new] = known.emplace(place, static_cast<uint32_t>(places.size()));
    if (is_new) places.push_back(place);
    return entry->second;
  }

  // -- values
  Status decode_values(const wire::Plan& plan, Method& method) {
    if (plan.values() == nullptr) return absent("values");
    method.values.reserve(plan.values()->size());
    for (const wire::ValueSlot* slot : *plan.values()) {
      const size_t index = method.values.size();
      if (slot->value() == nullptr) return value_error(index, "absent");
      method.values.push_back(FERRY_TRY(decode_value(index, *slot)));
    }
    return {};
  }

  Result<Value> decode_value(size_t index, const wire::ValueSlot& slot) {
    constexpr const char* kItems = "items of a list";
    switch (slot.value_type()) {
      case wire::AnyValue::NoneValue:
        return None{};
      case wire::AnyValue::IntValue:
        return slot.value_as_IntValue()->value();
      case wire::AnyValue::BoolValue:
        return slot.value_as_BoolValue()->value();
      case wire::AnyValue::DoubleValue:
        return slot.value_as_DoubleValue()->value();
      case wire::AnyValue::StringValue:
        return FERRY_TRY(text(slot.value_as_StringValue()->value(), "text of a string"));
      case wire::AnyValue::IntListValue:
        return FERRY_TRY(decode_int_list(index, slot.value_as_IntListValue()->items()));
      case wire::AnyValue::DoubleListValue:
        return DoubleList{
            FERRY_TRY(list<double>(slot.value_as_DoubleListValue()->items(), kItems))};
      case wire::AnyValue::BoolListValue:
        return BoolList{FERRY_TRY(list<bool>(slot.value_as_BoolListValue()->items(), kItems))};
      case wire::AnyValue::TensorListValue:
        return TensorList{
            FERRY_TRY(list<int32_t>(slot.value_as_TensorListValue()->items(), kItems))};
      case wire::AnyValue::OptionalTensorListValue:
        return OptionalTensorList{
            FERRY_TRY(list<int32_t>(slot.value_as_OptionalTensorListValue()->items(), kItems))};
      case wire::AnyValue::TensorValue:
        return FERRY_TRY(decode_tensor(index, *slot.value_as_TensorValue()));
      case wire::AnyValue::NONE:
        break;
    }
    return value_error(index, fmt::format("unknown kind {}", static_cast<int>(slot.value_type())));
  }

  Result<IntList> decode_int_list(size_t index, const flatbuffers::Vector<int64_t>* items) {
    IntList out;
    for (int64_t item : FERRY_TRY(list<int64_t>(items, "items of a list"))) {
      if (item < 0 || item > INT32_MAX) {
        return value_error(index, fmt::format("list item {} is no value", item));
      }
      out.items.push_back(static_cast<int32_t>(item));
    }
    return out;
  }

  Result<Tensor> decode_tensor(size_t index, const wire::TensorValue& in) {
    Tensor out;
    if (in.extra()) FERRY_RETURN_IF_ERROR(decode_extra(index, *in.extra(), out));
    const auto dtype = dtype_from_executorch(in.scalar_type());
    if (!dtype) {
      return value_error(index, fmt::format("scalar type {}", in.scalar_type()), out.fqn,
                         ErrorCode::kUnsupported);
    }
    out.dtype = *dtype;
    if (in.storage_offset() != 0 || in.layout() != 0) {
      return value_error(index, "a tensor with a storage offset or a layout", out.fqn,
                         ErrorCode::kUnsupported);
    }
    if (in.dynamism() != 0 && in.dynamism() != 1) {
      return value_error(index, fmt::format("shape dynamism {}", in.dynamism()), out.fqn,
                         ErrorCode::kUnsupported);
    }
    out.dynamism = static_cast<Dynamism>(in.dynamism());
    out.sizes = FERRY_TRY(list<int32_t>(in.sizes(), "sizes of a tensor"));
    out.dim_order = FERRY_TRY(list<uint8_t>(in.dim_order(), "dimension order of a tensor"));
    out.data_index = in.data_index();
    if (const wire::Placement* place = in.placement()) {
      out.allocation =
          Allocation{place->memory(), uint64_t{place->offset_high()} << 32 | place->offset_low()};
    }
    return out;
  }

  Status decode_extra(size_t index, const wire::TensorExtra& extra, Tensor& out) {
    if (extra.name()) out.fqn = FERRY_TRY(text(extra.name(), "name of a tensor"));
    if (extra.location() != 0 && extra.location() != 1) {
      return value_error(index, fmt::format("data location {}", extra.location()), out.fqn);
    }
    if (extra.device_type() != 0) {
      return value_error(index, fmt::format("on device type {}", extra.device_type()), out.fqn,
                         ErrorCode::kUnsupported);
    }
    out.external = extra.location() == 1;
    return {};
  }

  // -- instructions
  Status decode_steps(const wire::Plan& plan, Method& method) {
    if (plan.chains() == nullptr || plan.chains()->size() == 0) return absent("chain");
    if (plan.chains()->size() > 1) return error("several chains", ErrorCode::kUnsupported);
    const auto* steps = plan.chains()->Get(0)->steps();
    if (steps == nullptr) return absent("instructions");
    method.instructions.reserve(steps->size());
    for (const wire::Step* step : *steps) {
      if (step->step() == nullptr) {
        return error(fmt::format("instruction {}: absent", method.instructions.size()));
      }
      method.instructions.push_back(FERRY_TRY(decode_step(method.instructions.size(), *step)));
    }
    return {};
  }

  Result<Instruction> decode_step(size_t index, const wire::Step& step) {
    switch (step.step_type()) {
      case wire::AnyStep::KernelStep: {
        const auto* in = step.step_as_KernelStep();
        return KernelCall{in->op(), FERRY_TRY(list<int32_t>(in->args(), "arguments"))};
      }
      case wire::AnyStep::DelegateStep: {
        const auto* in = step.step_as_DelegateStep();
        return DelegateCall{in->delegate(), FERRY_TRY(list<int32_t>(in->args(), "arguments"))};
      }
      case wire::AnyStep::MoveStep:
        return MoveCall{step.step_as_MoveStep()->from(), step.step_as_MoveStep()->to()};
      case wire::AnyStep::JumpFalseStep:
        return JumpFalseCall{step.step_as_JumpFalseStep()->condition(),
                             step.step_as_JumpFalseStep()->destination()};
      case wire::AnyStep::FreeStep:
        return FreeCall{step.step_as_FreeStep()->value()};
      case wire::AnyStep::NONE:
        break;
    }
    return error(
        fmt::format("instruction {}: unknown kind {}", index, static_cast<int>(step.step_type())));
  }

  uint64_t budget_;
  const std::string& file_;
  std::string method_;  // name of the method that is being decoded, for messages
  BlobPlaces places_;
  std::map<BlobPlaces::Delegate, uint32_t> delegate_data_;
  std::map<uint32_t, uint32_t> named_data_;
};

}  // namespace

Result<DecodedProgram> decode_program(const wire::Program& root, size_t flat_bytes,
                                      const std::string& name) {
  return Decoder(flat_bytes, name).decode(root);
}

}  // namespace ferry::pte
