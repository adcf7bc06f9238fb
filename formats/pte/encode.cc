#include "formats/pte/encode.h"

#include "program_generated.h"

namespace ferry::pte {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Offset<wire::TensorValue> encode_tensor(FlatBufferBuilder& b, const Tensor& tensor) {
  const auto sizes = b.CreateVector(tensor.sizes);
  const auto dim_order = b.CreateVector(tensor.dim_order);
  Offset<wire::Placement> placement;
  if (tensor.allocation) {
    const uint64_t offset = tensor.allocation->offset;
    placement = wire::CreatePlacement(b, tensor.allocation->memory, static_cast<uint32_t>(offset),
                                      static_cast<uint32_t>(offset >> 32));
  }
  Offset<wire::TensorExtra> extra;
  if (tensor.external || !tensor.fqn.empty()) {
    extra = wire::CreateTensorExtra(b, 0, b.CreateString(tensor.fqn), tensor.external ? 1 : 0);
  }
  const auto scalar_type = static_cast<int8_t>(dtype_info(tensor.dtype).executorch);
  return wire::CreateTensorValue(b, scalar_type, 0, sizes, dim_order, false, tensor.data_index,
                                 placement, 0, static_cast<int8_t>(tensor.dynamism), extra);
}

// There is one overload for each kind of value; it returns the type on the wire and the table.
struct ValueEncoder {
  FlatBufferBuilder& b;
  using Union = std::pair<wire::AnyValue, Offset<void>>;

  Union operator()(None) const {
    return {wire::AnyValue::NoneValue, wire::CreateNoneValue(b).Union()};
  }
  Union operator()(int64_t value) const {
    return {wire::AnyValue::IntValue, wire::CreateIntValue(b, value).Union()};
  }
  Union operator()(bool value) const {
    return {wire::AnyValue::BoolValue, wire::CreateBoolValue(b, value).Union()};
  }
  Union operator()(double value) const {
    return {wire::AnyValue::DoubleValue, wire::CreateDoubleValue(b, value).Union()};
  }
  Union operator()(const Tensor& tensor) const {
    return {wire::AnyValue::TensorValue, encode_tensor(b, tensor).Union()};
  }
  Union operator()(const std::string& text) const {
    return {wire::AnyValue::StringValue, wire::CreateStringValue(b, b.CreateString(text)).Union()};
  }
  Union operator()(const IntList& list) const {
    const std::vector<int64_t> items(list.items.begin(), list.items.end());
    return {wire::AnyValue::IntListValue,
            wire::CreateIntListValue(b, b.CreateVector(items)).Union()};
  }
  Union operator()(const DoubleList& list) const {
    return {wire::AnyValue::DoubleListValue,
            wire::CreateDoubleListValue(b, b.CreateVector(list.items)).Union()};
  }
  Union operator()(const BoolList& list) const {
    return {wire::AnyValue::BoolListValue,
            wire::CreateBoolListValue(b, b.CreateVector(list.items)).Union()};
  }
  Union operator()(const TensorList& list) const {
    return {wire::AnyValue::TensorListValue,
            wire::CreateTensorListValue(b, b.CreateVector(list.items)).Union()};
  }
  Union operator()(const OptionalTensorList& list) const {
    return {wire::AnyValue::OptionalTensorListValue,
            wire::CreateOptionalTensorListValue(b, b.CreateVector(list.items)).Union()};
  }
};

struct StepEncoder {
  FlatBufferBuilder& b;
  using Union = std::pair<wire::AnyStep, Offset<void>>;

  Union operator()(const KernelCall& call) const {
    return {wire::AnyStep::KernelStep,
            wire::CreateKernelStep(b, call.op, b.CreateVector(call.args)).Union()};
  }
  Union operator()(const DelegateCall& call) const {
    return {wire::AnyStep::DelegateStep,
            wire::CreateDelegateStep(b, call.delegate, b.CreateVector(call.args)).Union()};
  }
  Union operator()(const MoveCall& move) const {
    return {wire::AnyStep::MoveStep, wire::CreateMoveStep(b, move.from, move.to).Union()};
  }
  Union operator()(const JumpFalseCall& jump) const {
    return {wire::AnyStep::JumpFalseStep,
            wire::CreateJumpFalseStep(b, jump.condition, jump.destination).Union()};
  }
  Union operator()(const FreeCall& free) const {
    return {wire::AnyStep::FreeStep, wire::CreateFreeStep(b, free.value).Union()};
  }
};

Offset<wire::Chain> encode_chain(FlatBufferBuilder& b, const Method& method) {
  std::vector<Offset<wire::Step>> steps;
  steps.reserve(method.instructions.size());
  for (const Instruction& instruction : method.instructions) {
    const auto [type, table] = std::visit(StepEncoder{b}, instruction);
    steps.push_back(wire::CreateStep(b, type, table));
  }
  const auto none = b.CreateVector(std::vector<int32_t>());
  return wire::CreateChain(b, none, none, b.CreateVector(steps));
}

Offset<wire::Delegate> encode_delegate(FlatBufferBuilder& b, const Delegate& delegate,
                                       uint32_t segment) {
  const auto id = b.CreateString(delegate.backend);
  const auto blob = wire::CreateDelegateBlob(b, 1, segment);
  const auto no_specs = b.CreateVector(std::vector<Offset<wire::CompileSpec>>());
  return wire::CreateDelegate(b, id, blob, no_specs);
}

Offset<wire::Plan> encode_method(FlatBufferBuilder& b, const Method& method,
                                 const DataTables& tables) {
  std::vector<Offset<wire::ValueSlot>> values;
  values.reserve(method.values.size());
  for (const Value& value : method.values) {
    const auto [type, table] = std::visit(ValueEncoder{b}, value);
    values.push_back(wire::CreateValueSlot(b, type, table));
  }
  std::vector<Offset<wire::OperatorName>> operators;
  for (const Operator& op : method.operators) {
    // The overload is always present, because the runtime's log would dereference an absent one.
    const auto name = b.CreateString(op.name);
    operators.push_back(wire::CreateOperatorName(b, name, b.CreateString(op.overload)));
  }
  const auto name = b.CreateString(method.name);
  const auto value_vector = b.CreateVector(values);
  const auto inputs = b.CreateVector(method.inputs);
  const auto outputs = b.CreateVector(method.outputs);
  const auto chains = b.CreateVector(std::vector{encode_chain(b, method)});
  const auto operator_vector = b.CreateVector(operators);
  std::vector<Offset<wire::Delegate>> delegates;
  for (const Delegate& delegate : method.delegates) {
    delegates.push_back(encode_delegate(b, delegate, tables.delegates[delegate.data]));
  }
  const auto delegate_vector = b.CreateVector(delegates);
  const auto memory =
      b.CreateVector(std::vector<int64_t>(method.memory_bytes.begin(), method.memory_bytes.end()));
  return wire::CreatePlan(b, name, 0, value_vector, inputs, outputs, chains, operator_vector,
                          delegate_vector, memory);
}

}  // namespace

std::vector<uint8_t> encode_program(const Program& program, const DataTables& tables) {
  FlatBufferBuilder b(1 << 16);
  std::vector<Offset<wire::Plan>> plans;
  for (const Method& method : program.methods) plans.push_back(encode_method(b, method, tables));
  std::vector<Offset<wire::FileSegment>> segments;
  for (const auto& [offset, size] : tables.segments) {
    segments.push_back(wire::CreateFileSegment(b, offset, size));
  }
  const auto constants = wire::CreateSubsegments(b, 0, b.CreateVector(tables.constants));
  std::vector<Offset<wire::Subsegments>> initial;
  if (!tables.initial.empty()) {
    initial.push_back(wire::CreateSubsegments(b, 1, b.CreateVector(tables.initial)));
  }
  const auto plan_vector = b.CreateVector(plans);
  const auto no_buffers = b.CreateVector(std::vector<Offset<wire::Blob>>());
  const auto no_delegates = b.CreateVector(std::vector<Offset<wire::InlineDelegateData>>());
  const auto segment_vector = b.CreateVector(segments);
  const auto initial_vector = b.CreateVector(initial);
  std::vector<Offset<wire::NamedBlob>> named;
  for (const NamedData& data : program.named_data) {
    named.push_back(wire::CreateNamedBlob(b, b.CreateString(data.key), tables.named[data.data]));
  }
  const auto named_vector = b.CreateVector(named);
  b.Finish(wire::CreateProgram(b, 0, plan_vector, no_buffers, no_delegates, segment_vector,
                               constants, initial_vector, named_vector),
           "ET12");
  return {b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize()};
}

}  // namespace ferry::pte
