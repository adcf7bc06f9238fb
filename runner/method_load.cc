// Loading a method: values, memory, data and instructions are resolved once. Offers load_method and
// allocate_memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/checked.h"
#include "core/text.h"
#include "formats/pte/op_schema.h"
#include "kernels/kernel.h"
#include "runner/constant_views.h"
#include "runner/joined_caches.h"
#include "runner/method_loading.h"
#include "runner/stored_caches.h"
#include "runner/wanted_rows.h"

namespace ferry::runner {
namespace {

constexpr uint64_t kAlignment = 64;

Status check_input_type(const MethodState& state, int32_t port) {
  const kernels::Value& value = state.values[static_cast<size_t>(port)];
  if (value.kind == kernels::Value::Kind::kTensor || value.is_number()) return {};
  return state.error(ErrorCode::kUnsupported,
                     fmt::format("input {} is neither a tensor nor a number", port));
}

Status check_output(const MethodState& state, int32_t port) {
  const kernels::Value& value = state.values[static_cast<size_t>(port)];
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
    // Numbers have the value that the program stores until they are set.
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

// Tensors that a kernel writes and the program leaves to the runtime, one after the other.
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
  // A move may have been seen before its target got memory.
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
                                                       uint64_t scale) {
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
  for (uint64_t bytes : sizes) {
    memory->arenas.push_back(FERRY_TRY(Arena::allocate(bytes, budget)));
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
  if (state.literal) return {};
  join_caches(loading);
  read_stored_caches(loading);
  find_row_outputs(loading);
  return {};
}

}  // namespace ferry::runner
