// The memory of delegates, and the step of a call of a delegate. It also defines
// make_delegate_step.
#include "runner/delegate/delegate.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "core/text.h"
#include "formats/xnnpack/reader.h"
#include "formats/xnnpack/validate.h"
#include "runner/method_loading.h"

namespace ferry::runner {
namespace {

using Bytes = std::span<const std::byte>;

const std::string kBlob = "its blob";

// Data files take precedence over the program.
void find_named_data(Loading& loading) {
  if (!loading.named.empty()) return;
  for (const ExternalTensor& tensor : loading.external) {
    loading.named.emplace(tensor.key, tensor.bytes);
  }
  for (const pte::NamedData& data : loading.program.program.named_data) {
    loading.named.emplace(data.key, loading.program.data.named[data.data]);
  }
}

Result<std::vector<kernels::Tensor*>> arguments_of(const Loading& loading,
                                                   const pte::DelegateCall& call) {
  std::vector<kernels::Tensor*> args;
  for (int32_t id : call.args) {
    args.push_back(loading.tensor(id));
    if (args.back() == nullptr) {
      return bad_input(fmt::format("argument {} is no tensor", args.size() - 1));
    }
  }
  return args;
}

// Returns the bytes of all constants; [0] is a placeholder.
Result<std::vector<Bytes>> constants_of(const Loading& loading, const xnnpack::Graph& graph,
                                        Bytes blob) {
  const xnnpack::NamedLookup lookup = [&](std::string_view key) -> std::optional<Bytes> {
    const auto found = loading.named.find(key);
    if (found == loading.named.end()) return std::nullopt;
    return found->second;
  };
  FERRY_RETURN_IF_ERROR(xnnpack::check_constants(graph, blob, lookup, kBlob));
  std::vector<Bytes> constants(1);
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    constants.push_back(
        FERRY_TRY(xnnpack::constant_bytes(graph.constants[i], blob, lookup, kBlob)));
  }
  return constants;
}

bool is_f32_vector(const xnnpack::Value& value) {
  const auto is_long = [](uint64_t n) { return n > 1; };
  return value.datatype == xnnpack::Datatype::kF32 && value.constant != 0 &&
         std::ranges::count_if(value.dims, is_long) == 1;
}

// See MethodOptions::disturb.
void disturb_vectors(Loading& loading, const xnnpack::Graph& graph, size_t index,
                     std::vector<Bytes>& constants) {
  std::set<uint32_t> done;
  for (const xnnpack::Value& value : graph.values) {
    if (!is_f32_vector(value) || value.constant >= constants.size()) continue;
    if (!done.insert(value.constant).second) continue;
    const uint64_t place = (uint64_t{index} << 32) + value.constant;
    constants[value.constant] = disturbed(loading.state, constants[value.constant], place);
  }
}

Result<std::unique_ptr<Delegate>> compile(Loading& loading, const pte::DelegateCall& call,
                                          size_t index) {
  const auto delegate = static_cast<size_t>(call.delegate);
  const Bytes blob = loading.program.data.delegates[loading.method.delegates[delegate].data];
  const xnnpack::Graph graph = FERRY_TRY(xnnpack::read_blob(blob, kBlob));
  find_named_data(loading);
  const auto named = std::ranges::find_if(
      graph.constants, [](const auto& constant) { return !constant.key.empty(); });
  if (named != graph.constants.end()) loading.state.step_weights[index] = named->key;
  std::vector<Bytes> constants = FERRY_TRY(constants_of(loading, graph, blob));
  if (loading.state.disturb) disturb_vectors(loading, graph, index, constants);
  const std::vector<kernels::Tensor*> args = FERRY_TRY(arguments_of(loading, call));
  std::vector<std::span<const uint8_t>> orders;
  for (const int32_t id : call.args) orders.push_back(loading.pte_tensor(id)->dim_order);
  const auto copy = [&](Bytes bytes) { return loading.state.memory->aligned_copy(bytes); };
  return Delegate::compile({graph, constants, args, orders, copy, loading.state.literal,
                            loading.state.widen, loading.state.round_rows},
                           *loading.state.memory->delegates, loading.budget);
}

std::vector<int32_t> ids_of(std::span<kernels::Tensor* const> tensors) {
  std::vector<int32_t> ids;
  for (const kernels::Tensor* tensor : tensors) ids.push_back(tensor->id);
  return ids;
}

}  // namespace

Result<const kernels::PackedMatrix*> DelegateMemory::packed(const kernels::CodedMatrix& matrix,
                                                            MemoryBudget& budget) {
  const Key key = {matrix.codes, matrix.scales, matrix.rows,       matrix.columns,
                   matrix.group, matrix.bits,   matrix.scale_dtype};
  auto found = packed_.find(key);
  if (found == packed_.end()) {
    kernels::PackedMatrix made = kernels::PackedMatrix::pack(matrix);
    FERRY_RETURN_IF_ERROR(budget.take(made.bytes()));
    found = packed_.emplace(key, std::move(made)).first;
  }
  return &found->second;
}

Status DelegateMemory::reserve(uint64_t bytes, MemoryBudget& budget) {
  if (bytes <= scratch_.size()) return {};
  scratch_ = FERRY_TRY(Arena::allocate(bytes, budget));
  if (poison_) scratch_.refill(true);
  return {};
}

Status make_delegate_step(Loading& loading, const pte::DelegateCall& call, size_t index,
                          Step& step) {
  MethodState& state = loading.state;
  state.step_names[index] = fmt::format("delegate {}", call.delegate);
  Result<std::unique_ptr<Delegate>> delegate = compile(loading, call, index);
  if (!delegate) {
    return Failure(state.at_step(index, std::move(delegate).error()));
  }
  step.kind = Step::Kind::kDelegate;
  step.delegate = delegate->get();
  step.inputs = step.delegate->inputs();
  step.outs = step.delegate->outputs();
  loading.reads[index] = ids_of(step.inputs);
  loading.unplanned[index] = state.written[index] = ids_of(step.outs);
  state.delegates.push_back(std::move(*delegate));
  return {};
}

}  // namespace ferry::runner
