// The values of a method and the memory of its tensors. It defines make_values and bind_tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

#include "core/checked.h"
#include "core/dim_order.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "kernels/dtypes.h"
#include "runner/method_loading.h"

namespace ferry::runner {
namespace {

bool is_stored(const pte::Tensor& tensor) {
  return tensor.external || (tensor.data_index > 0 && !tensor.allocation);
}

// Returns whether the operator reads argument `index` in any floating-point dtype.
bool reads_matrix(const std::string& op, size_t index) {
  return (op == pte::ops::Linear::kName && index == pte::ops::Linear::kWeight) ||
         (op == pte::ops::Embedding::kName && index == pte::ops::Embedding::kWeight);
}

// A call with the name of its operator.
struct NamedCall {
  std::string op;
  const pte::KernelCall* call;
};
// Returns the calls of a method in order.
std::vector<NamedCall> named_calls(const pte::Method& method) {
  std::vector<NamedCall> calls;
  for (const pte::Instruction& instruction : method.instructions) {
    const auto* call = std::get_if<pte::KernelCall>(&instruction);
    if (call == nullptr || call->args.empty()) continue;
    calls.push_back({method.operators[static_cast<size_t>(call->op)].full_name(), call});
  }
  return calls;
}

// Returns, per value, whether it is a matrix: a constant, or a selection from one (the matrix of
// one expert from those of all), that only linear layers and embeddings read.
std::vector<bool> matrices(const pte::Method& method) {
  const auto is_matrix_rank = [](const pte::Tensor& tensor) { return tensor.sizes.size() >= 2; };
  std::vector<bool> matrix(method.values.size(), false);
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    matrix[i] = tensor != nullptr && is_stored(*tensor) && is_matrix_rank(*tensor);
  }
  const std::vector<NamedCall> calls = named_calls(method);
  // A selection from a stack of matrices may be a matrix. The loop below decides.
  for (const NamedCall& c : calls) {
    if (c.op != pte::ops::SelectCopy::kName) continue;
    const int32_t stack = c.call->args[pte::ops::SelectCopy::kSelf];
    if (matrix[static_cast<size_t>(stack)]) matrix[static_cast<size_t>(c.call->args.back())] = true;
  }
  const auto keeps_matrix = [&](const NamedCall& c, size_t a) {
    if (reads_matrix(c.op, a)) return true;
    const std::vector<int32_t>& args = c.call->args;
    const bool is_source = a == pte::ops::SelectCopy::kSelf;
    if (c.op != pte::ops::SelectCopy::kName || (!is_source && a + 1 != args.size())) return false;
    return bool(matrix[static_cast<size_t>(is_source ? args.back() : args.front())]);
  };
  // A value that any other operator reads is no matrix. The loop repeats because a selection that
  // is no matrix is such a reader.
  for (bool changed = true; changed;) {
    changed = false;
    for (const NamedCall& c : calls) {
      for (size_t a = 0; a < c.call->args.size(); ++a) {
        const auto value = static_cast<size_t>(c.call->args[a]);
        if (!matrix[value] || keeps_matrix(c, a)) continue;
        matrix[value] = false;
        changed = true;
      }
    }
  }
  // Operators with lists require values of one dtype.
  for (const pte::Value& value : method.values) {
    const auto* list = std::get_if<pte::TensorList>(&value);
    if (list == nullptr) continue;
    for (const int32_t item : list->items) matrix[static_cast<size_t>(item)] = false;
  }
  for (const pte::Instruction& instruction : method.instructions) {
    const auto* move = std::get_if<pte::MoveCall>(&instruction);
    if (move == nullptr) continue;
    matrix[static_cast<size_t>(move->from)] = matrix[static_cast<size_t>(move->to)] = false;
  }
  return matrix;
}

// Returns, per value, the dtype in which MethodOptions::widen keeps it, if it is not its own. That
// is f32 for tensors in f16 or bf16 that are neither constants, nor selected from constants, nor
// mutable buffers, nor rows of these.
std::vector<std::optional<DType>> widened_values(const pte::Method& method) {
  std::vector<std::optional<DType>> widened(method.values.size());
  std::vector<bool> constant(method.values.size(), false), converted = constant;
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    if (tensor == nullptr || !is_half(tensor->dtype)) continue;
    constant[i] = is_stored(*tensor);
    const bool wide = !constant[i] && tensor->fqn.empty() && tensor->data_index == 0;
    if (wide) widened[i] = DType::kF32;
  }
  for (const NamedCall& c : named_calls(method)) {
    const auto self = static_cast<size_t>(c.call->args.front());
    const auto out = static_cast<size_t>(c.call->args.back());
    // The matrix of one expert is selected from those of all.
    if (c.op == pte::ops::SelectCopy::kName && constant[self]) {
      constant[out] = true;
      widened[out].reset();
    }
    // Caches in half precision stay so: the rows that are copied into them, and those read.
    const bool reads = c.op == pte::ops::SliceCopy::kName && !widened[self];
    if (reads) widened[out].reset();
    const bool writes =
        c.op == "llama::update_cache.out" || c.op == "llama::update_cache_with_indices.out";
    if (writes && converted[self]) widened[self].reset();
    converted[out] = c.op == pte::ops::ToCopy::kName;
  }
  return widened;
}

// Returns, per value, whether it belongs to the angles of RoPE: the steps from the positions of a
// call and from constants to sines and cosines, and the steps that scale these.
std::vector<bool> angle_values(const pte::Method& method) {
  static constexpr std::string_view kSteps[] = {"aten::_to_copy.out", "aten::unsqueeze_copy.out",
                                                "aten::mul.out", "aten::mul.Scalar_out"};
  const auto turns = [](const NamedCall& c) {
    return c.op == "aten::cos.out" || c.op == "aten::sin.out";
  };
  const auto out = [](const NamedCall& c) { return static_cast<size_t>(c.call->args.back()); };
  const auto inputs = [&](const NamedCall& c) {
    std::vector<size_t> tensors;
    for (const int32_t arg : std::span(c.call->args).first(c.call->args.size() - 1)) {
      const auto value = static_cast<size_t>(arg);
      const auto* tensor = std::get_if<pte::Tensor>(&method.values[value]);
      if (tensor != nullptr && value != out(c) && !is_stored(*tensor)) tensors.push_back(value);
    }
    return tensors;
  };
  const std::vector<NamedCall> calls = named_calls(method);
  std::vector<bool> position(method.values.size(), false), angle = position;
  // A program with a ring turns by slots, which it chooses for each position.
  const auto is_slot = [&](const NamedCall& c) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[out(c)]);
    return c.op == "aten::where.self_out" && tensor != nullptr && tensor->dtype == DType::kI64;
  };
  for (const NamedCall& c : calls) {
    if (c.op == "aten::arange.start_out" || is_slot(c)) position[out(c)] = true;
    if (!turns(c) && std::ranges::find(kSteps, c.op) == std::end(kSteps)) continue;
    const std::vector<size_t> from = inputs(c);
    const auto is_position = [&](size_t value) { return position[value]; };
    if (from.empty() || !std::ranges::all_of(from, is_position)) continue;
    position[out(c)] = true;
    const auto is_angle = [&](size_t value) { return angle[value]; };
    angle[out(c)] = turns(c) || std::ranges::any_of(from, is_angle);
  }
  for (auto c = calls.rbegin(); c != calls.rend(); ++c) {
    if (!angle[out(*c)]) continue;
    for (const size_t value : inputs(*c)) angle[value] = position[value];
  }
  return angle;
}

// Returns, per value, the dtype in which MethodOptions::f64 keeps it, if it is not its own. That is
// f64 for all floating-point tensors but two kinds. Linear layers and embeddings read matrices in
// their stored dtype. The reference computes angles of RoPE in f32 whatever the model's dtype is.
std::vector<std::optional<DType>> f64_values(const pte::Method& method) {
  const std::vector<bool> matrix = matrices(method);
  const std::vector<bool> angle = angle_values(method);
  std::vector<std::optional<DType>> wide(method.values.size());
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    if (tensor == nullptr || !is_castable(tensor->dtype)) continue;
    if (!matrix[i] && !angle[i]) wide[i] = DType::kF64;
  }
  return wide;
}

Status check_tensor(const MethodState& state, int32_t id, const pte::Tensor& from) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    const std::string name = from.fqn.empty() ? "" : fmt::format(" {}", quoted(from.fqn));
    return state.error(code, fmt::format("value {}{}: {}", id, name, why));
  };
  if (!kernels::is_computable(from.dtype) && from.dtype != DType::kC64) {
    return refuse(ErrorCode::kUnsupported, fmt::format("dtype {}", dtype_name(from.dtype)));
  }
  if (from.sizes.size() > kernels::kMaxRank) {
    return refuse(ErrorCode::kBadInput, "too many dimensions");
  }
  const std::vector<int64_t> sizes(from.sizes.begin(), from.sizes.end());
  const std::optional<int64_t> count = checked_numel(sizes);
  // The size is checked in f64, because no element is larger.
  if (!count || !checked_mul<int64_t>(*count, sizeof(double))) {
    return refuse(ErrorCode::kBadInput, "its size overflows");
  }
  return {};
}

Status make_tensor(MethodState& state, const pte::Tensor& from, std::optional<DType> wide,
                   kernels::Value& to) {
  FERRY_RETURN_IF_ERROR(check_tensor(state, to.id, from));
  kernels::Tensor& tensor = state.tensors.emplace_back();
  tensor.id = to.id;
  tensor.widened = wide.has_value();
  tensor.dtype = wide.value_or(from.dtype);
  tensor.dynamic = from.dynamism != pte::Dynamism::kStatic;
  for (int32_t size : from.sizes) tensor.sizes.push_back(size);
  tensor.numel = kernels::numel(tensor.sizes.span());
  tensor.capacity = static_cast<uint64_t>(tensor.bytes());
  to.kind = kernels::Value::Kind::kTensor;
  to.tensor = &tensor;
  state.bounds[static_cast<size_t>(to.id)] = tensor.sizes;
  state.declared[static_cast<size_t>(to.id)] = from.dtype;
  return {};
}

void make_list(MethodState& state, kernels::Value::Kind kind, const IndexList& indices,
               kernels::Value& to) {
  to.kind = kind;
  for (int32_t index : indices) {
    to.items.push_back(index < 0 ? nullptr : &state.values[static_cast<size_t>(index)]);
  }
}

void make_number(const pte::Value& from, kernels::Value& to) {
  using Kind = kernels::Value::Kind;
  if (const auto* integer = std::get_if<int64_t>(&from)) {
    to.kind = Kind::kInt;
    to.integer = *integer;
  } else if (const auto* boolean = std::get_if<bool>(&from)) {
    to.kind = Kind::kBool;
    to.boolean = *boolean;
  } else if (const auto* real = std::get_if<double>(&from)) {
    to.kind = Kind::kDouble;
    to.real = *real;
  }
}

void make_other(MethodState& state, const pte::Value& from, kernels::Value& to) {
  using Kind = kernels::Value::Kind;
  if (const auto* text = std::get_if<std::string>(&from)) {
    to.kind = Kind::kString;
    to.text = *text;
  } else if (const auto* ints = std::get_if<pte::IntList>(&from)) {
    make_list(state, Kind::kIntList, ints->items, to);
  } else if (const auto* list = std::get_if<pte::TensorList>(&from)) {
    make_list(state, Kind::kTensorList, list->items, to);
  } else if (const auto* optionals = std::get_if<pte::OptionalTensorList>(&from)) {
    make_list(state, Kind::kOptionalTensorList, optionals->items, to);
  } else if (std::holds_alternative<pte::BoolList>(from)) {
    to.kind = Kind::kBoolList;
  } else if (const auto* reals = std::get_if<pte::DoubleList>(&from)) {
    to.kind = Kind::kDoubleList;
    for (const double item : reals->items) {
      state.literals.push_back({.kind = Kind::kDouble});
      state.literals.back().real = item;
      to.items.push_back(&state.literals.back());
    }
  } else {
    make_number(from, to);
  }
}

// Returns the bytes of the tensor in the dtype that the program states.
uint64_t stored_bytes(const pte::Tensor& from, const kernels::Tensor& to) {
  return static_cast<uint64_t>(to.numel * dtype_bytes(from.dtype));
}

// Assigns memory to tensors.
class Binder {
 public:
  explicit Binder(Loading& loading) : loading_(loading), state_(loading.state) {
    for (const ExternalTensor& tensor : loading.external) {
      if (tensor.is_tensor) external_.emplace(tensor.key, &tensor);
    }
  }

  Status bind(const pte::Tensor& from, kernels::Tensor& to);
  std::vector<std::string> missing;  // names of absent external tensors

 private:
  bool is_disturbed(const pte::Tensor& from) const {
    return state_.disturb && from.dtype == DType::kF32 && from.sizes.size() == 1;
  }
  Status bind_planned(const pte::Tensor& from, kernels::Tensor& to);
  // Returns stored elements of the tensor in row-major order.
  std::span<const std::byte> row_major(const pte::Tensor& from, const kernels::Tensor& to,
                                       std::span<const std::byte> bytes);
  // `dtype` is the dtype of the bytes.
  Status bind_constant(std::span<const std::byte> bytes, DType dtype, kernels::Tensor& to);
  Result<std::span<const std::byte>> external_bytes(const pte::Tensor& from,
                                                    const kernels::Tensor& to);
  Result<std::span<const std::byte>> initial_contents(const pte::Tensor& from,
                                                      const kernels::Tensor& to);

  Loading& loading_;
  MethodState& state_;
  std::unordered_map<std::string_view, const ExternalTensor*> external_;
};

Result<std::span<const std::byte>> Binder::external_bytes(const pte::Tensor& from,
                                                          const kernels::Tensor& to) {
  const auto found = external_.find(from.fqn);
  if (found == external_.end()) {
    missing.push_back(quoted(from.fqn));
    return std::span<const std::byte>();
  }
  const ExternalTensor& tensor = *found->second;
  const bool same_sizes =
      std::equal(tensor.sizes.begin(), tensor.sizes.end(), from.sizes.begin(), from.sizes.end());
  const uint64_t bytes = stored_bytes(from, to);
  if (tensor.dtype != from.dtype || !same_sizes || tensor.bytes.size() < bytes) {
    return state_.bad(
        fmt::format("external tensor {} is {}[{}] in the data and {}[{}] in the program",
                    quoted(from.fqn), dtype_name(tensor.dtype), fmt::join(tensor.sizes, ", "),
                    dtype_name(from.dtype), fmt::join(from.sizes, ", ")));
  }
  if (is_disturbed(from)) {
    return disturbed(state_, tensor.bytes.first(bytes), static_cast<uint64_t>(to.id));
  }
  return row_major(from, to, tensor.bytes.first(bytes));
}

std::span<const std::byte> Binder::row_major(const pte::Tensor& from, const kernels::Tensor& to,
                                             std::span<const std::byte> bytes) {
  const uint64_t count = stored_bytes(from, to);
  if (is_row_major(from.dim_order) || bytes.size() < count) return bytes;
  const std::span<std::byte> copy = state_.memory->own_copy(bytes.first(count));
  copy_row_major(bytes, to.sizes.span(), from.dim_order, dtype_bytes(from.dtype), copy.data());
  return copy;
}

Status Binder::bind_constant(std::span<const std::byte> bytes, DType dtype, kernels::Tensor& to) {
  const auto expected = static_cast<uint64_t>(to.numel * dtype_bytes(dtype));
  if (bytes.size() < expected) {
    return state_.bad(
        fmt::format("value {}: {} bytes of data, expected {}", to.id, bytes.size(), expected));
  }
  if (dtype != to.dtype) bytes = state_.memory->f64_copy(bytes.first(expected), dtype);
  if (!is_aligned(bytes.data(), to.element_bytes())) {
    bytes = state_.memory->aligned_copy(bytes.first(to.capacity));
  }
  // The bytes are written only if Tensor::writable is set.
  to.data = const_cast<std::byte*>(bytes.data());
  return {};
}

Result<std::span<const std::byte>> Binder::initial_contents(const pte::Tensor& from,
                                                            const kernels::Tensor& to) {
  if (from.external) return external_bytes(from, to);
  if (from.data_index == 0) return std::span<const std::byte>();
  const auto& initial = loading_.program.data.initial;
  const uint64_t bytes = stored_bytes(from, to);
  if (from.data_index >= initial.size() || initial[from.data_index].size() < bytes) {
    return state_.bad(fmt::format("value {} has no initial contents {}", to.id, from.data_index));
  }
  return row_major(from, to, initial[from.data_index].first(bytes));
}

Status Binder::bind_planned(const pte::Tensor& from, kernels::Tensor& to) {
  const pte::Allocation& place = *from.allocation;
  const std::vector<uint64_t>& sizes = loading_.method.memory_bytes;
  if (place.memory == 0 || place.memory >= sizes.size() ||
      !range_inside(place.offset, stored_bytes(from, to), sizes[place.memory])) {
    return state_.bad(
        fmt::format("value {} lies outside of planned memory {}", to.id, place.memory));
  }
  if (place.offset % static_cast<uint64_t>(to.element_bytes()) != 0) {
    return state_.bad(
        fmt::format("value {} is planned at offset {}, which is not aligned to its {}", to.id,
                    place.offset, dtype_name(to.dtype)));
  }
  const uint64_t offset = place.offset * state_.scale;
  to.data = state_.memory->arenas[place.memory].data() + offset;
  to.writable = true;
  state_.planned[static_cast<size_t>(to.id)] = true;
  std::span<const std::byte> contents = FERRY_TRY(initial_contents(from, to));
  if (!contents.empty() && from.dtype != to.dtype) {
    contents = state_.memory->f64_copy(contents, from.dtype);
  }
  if (!contents.empty()) state_.memory->initial.push_back({place.memory, offset, contents});
  return {};
}

Status Binder::bind(const pte::Tensor& from, kernels::Tensor& to) {
  if (to.widened && to.dtype == DType::kF32) {
    // If its planned memory is too small, it gets memory like a result without a plan.
  } else if (from.allocation) {
    FERRY_RETURN_IF_ERROR(bind_planned(from, to));
  } else if (from.external) {
    const std::span<const std::byte> bytes = FERRY_TRY(external_bytes(from, to));
    if (!bytes.empty()) FERRY_RETURN_IF_ERROR(bind_constant(bytes, from.dtype, to));
  } else if (from.data_index > 0) {
    const auto& constants = loading_.program.data.constants;
    if (from.data_index >= constants.size()) {
      return state_.bad(fmt::format("value {} has no constant {}", to.id, from.data_index));
    }
    std::span<const std::byte> bytes = constants[from.data_index];
    // A program of another tool has its norms inside. Ours have nothing but tables there.
    if (is_disturbed(from) && loading_.external.empty()) {
      bytes = disturbed(state_, bytes, static_cast<uint64_t>(to.id));
    }
    FERRY_RETURN_IF_ERROR(bind_constant(row_major(from, to, bytes), from.dtype, to));
  }
  if (to.capacity == 0) to.data = no_bytes();
  return {};
}

}  // namespace

std::span<const std::byte> disturbed(MethodState& state, std::span<const std::byte> bytes,
                                     uint64_t place) {
  const std::span<std::byte> copy = state.memory->own_copy(bytes);
  uint64_t random = *state.disturb * 0x9e3779b97f4a7c15 + place + 1;
  for (size_t at = 0; at + sizeof(float) <= copy.size(); at += sizeof(float)) {
    random = random * 6364136223846793005 + 1442695040888963407;
    float number;
    std::memcpy(&number, copy.data() + at, sizeof number);
    const float end = (random >> 63) != 0 ? std::numeric_limits<float>::infinity()
                                          : -std::numeric_limits<float>::infinity();
    if (number != 0 && std::isfinite(number)) number = std::nextafter(number, end);
    std::memcpy(copy.data() + at, &number, sizeof number);
  }
  return copy;
}

Status make_values(Loading& loading) {
  MethodState& state = loading.state;
  const size_t count = loading.method.values.size();
  state.values.resize(count);
  state.bounds.resize(count);
  state.declared.resize(count);
  state.planned.assign(count, false);
  std::vector<std::optional<DType>> widened(count);
  if (state.f64) {
    widened = f64_values(loading.method);
  } else if (state.widen) {
    widened = widened_values(loading.method);
  }
  for (size_t i = 0; i < count; ++i) {
    kernels::Value& to = state.values[i];
    to.id = static_cast<int32_t>(i);
    if (const pte::Tensor* from = loading.pte_tensor(to.id)) {
      FERRY_RETURN_IF_ERROR(make_tensor(state, *from, widened[i], to));
    } else {
      make_other(state, loading.method.values[i], to);
    }
  }
  return {};
}

Status bind_tensors(Loading& loading) {
  MethodState& state = loading.state;
  Binder binder(loading);
  for (kernels::Tensor& to : state.tensors) {
    FERRY_RETURN_IF_ERROR(binder.bind(*loading.pte_tensor(to.id), to));
  }
  std::vector<std::string>& missing = binder.missing;
  if (missing.empty()) return {};
  Failure report = state.bad(fmt::format(
      "{} external tensors are absent from the data files, first {}", missing.size(), missing[0]));
  if (missing.size() > kMaxListed) missing.resize(kMaxListed);
  report.error().details = std::move(missing);
  return report;
}

}  // namespace ferry::runner
