#include "runner/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "core/checked.h"
#include "core/text.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "runner/method_state.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {

struct Method::Impl {
  explicit Impl(ThreadPool& the_pool) : pool(the_pool) {}

  MethodState state;
  ThreadPool& pool;

  const kernels::Value& at(int32_t index) const { return state.values[static_cast<size_t>(index)]; }
  kernels::Value& at(int32_t index) { return state.values[static_cast<size_t>(index)]; }

  TensorView meta(int32_t index) const {
    const kernels::Value& value = at(index);
    if (value.tensor == nullptr) {
      TensorView view = view_of(value);
      view.bytes = {};
      return view;
    }
    TensorView view;
    set_view(*value.tensor, state.bounds[static_cast<size_t>(index)], view);
    view.bytes = {};
    if (is_f64(value)) view.dtype = state.declared[static_cast<size_t>(index)];
    return view;
  }

  // Returns whether a value is kept in f64 and shown in the dtype that the program states.
  bool is_f64(const kernels::Value& value) const {
    return state.f64 && value.tensor != nullptr && value.tensor->widened;
  }
  TensorView shown(const kernels::Value& value, std::vector<std::byte>& narrow) const {
    TensorView view = view_of(value);
    if (!is_f64(value)) return view;
    const std::vector<float> numbers = probe_floats(view);
    const DType dtype = state.declared[static_cast<size_t>(value.id)];
    narrow.resize(numbers.size() * static_cast<size_t>(dtype_bytes(dtype)));
    kernels::store(dtype, numbers.data(), narrow.data(), std::ssize(numbers));
    return {dtype, std::move(view.shape), narrow};
  }

  Failure bad_port(size_t index, const std::string& why) const {
    return bad_input(
        fmt::format("{}: method {}: input {}: {}", state.file, quoted(state.method), index, why));
  }

  std::vector<std::byte> narrow_value;  // the last result of value(), with f64

  Status set_number(size_t index, const TensorView& given);
  Status set_tensor(size_t index, const TensorView& given);
  Status set_widened(size_t index, const TensorView& given, int64_t numel);
  // The parts of an execution before and after its steps.
  Status begin();
  void end();
  // Later executions start with the caller's number.
  void keep_number(const kernels::Value& given);
  void release_inputs();
};

Status Method::Impl::set_number(size_t index, const TensorView& given) {
  kernels::Value& value = at(state.inputs[index]);
  const TensorView own = view_of(value);
  if (given.bytes.size() == sizeof(int64_t) && given.dtype == DType::kI64) {
    int64_t number;
    std::memcpy(&number, given.bytes.data(), sizeof number);
    value.integer = number;
    value.boolean = number != 0;
    value.real = static_cast<double>(number);
    return {};
  }
  if (given.dtype != own.dtype || given.bytes.size() != own.bytes.size()) {
    return bad_port(index, fmt::format("must be one {}", dtype_name(own.dtype)));
  }
  if (own.dtype == DType::kBool) {
    value.boolean = given.bytes[0] != std::byte{0};
  } else {
    std::memcpy(&value.real, given.bytes.data(), sizeof value.real);
  }
  return {};
}

Status Method::Impl::set_tensor(size_t index, const TensorView& given) {
  kernels::Tensor& tensor = *at(state.inputs[index]).tensor;
  const kernels::Dims& bound = state.bounds[static_cast<size_t>(state.inputs[index])];
  const auto expected = [&] {
    return fmt::format("{}{}[{}]", tensor.dynamic ? "at most " : "", dtype_name(tensor.dtype),
                       fmt::join(bound, ", "));
  };
  const bool widens = state.f64 && tensor.widened &&
                      given.dtype == state.declared[static_cast<size_t>(state.inputs[index])];
  bool fits = (given.dtype == tensor.dtype || widens) &&
              given.shape.size() == static_cast<size_t>(bound.rank());
  for (int d = 0; fits && d < bound.rank(); ++d) {
    const int64_t size = given.shape[static_cast<size_t>(d)];
    fits = size >= 0 && (tensor.dynamic ? size <= bound[d] : size == bound[d]);
  }
  if (!fits) {
    return bad_port(index, fmt::format("{}{} does not fit {}", dtype_name(given.dtype),
                                       to_string(given.shape), expected()));
  }
  const int64_t numel = kernels::numel(given.shape);
  const uint64_t bytes = static_cast<uint64_t>(numel * dtype_bytes(given.dtype));
  if (given.bytes.size() != bytes) {
    return bad_port(index, fmt::format("{} bytes of data, expected {}", given.bytes.size(), bytes));
  }
  if (widens) return set_widened(index, given, numel);
  tensor.sizes = kernels::Dims(given.shape);
  tensor.numel = numel;
  if (state.planned[static_cast<size_t>(state.inputs[index])]) {
    if (bytes > 0) std::memcpy(tensor.data, given.bytes.data(), bytes);
    return {};
  }
  const std::byte* data = bytes == 0 ? no_bytes() : given.bytes.data();
  if (!is_aligned(data, tensor.element_bytes())) {
    state.input_copies[index].assign(given.bytes.begin(), given.bytes.end());
    data = state.input_copies[index].data();
  }
  tensor.data = const_cast<std::byte*>(data);  // never written, because Tensor::writable is false
  return {};
}

// Sets an input of a method in f64 from the dtype that the program states. It has fewer bytes than
// its tensor.
Status Method::Impl::set_widened(size_t index, const TensorView& given, int64_t numel) {
  kernels::Tensor& tensor = *at(state.inputs[index]).tensor;
  tensor.sizes = kernels::Dims(given.shape);
  tensor.numel = numel;
  std::vector<std::byte>& wide = state.input_copies[index];
  std::vector<float> narrow(static_cast<size_t>(numel));
  to_f32(given.dtype, given.bytes.data(), narrow.data(), narrow.size());
  const std::vector<double> numbers(narrow.begin(), narrow.end());
  const auto bytes = std::as_bytes(std::span(numbers));
  wide.assign(bytes.begin(), bytes.end());
  if (state.planned[static_cast<size_t>(state.inputs[index])]) {
    if (numel > 0) std::memcpy(tensor.data, wide.data(), wide.size());
  } else {
    tensor.data = numel > 0 ? wide.data() : no_bytes();
  }
  return {};
}

void Method::Impl::keep_number(const kernels::Value& given) {
  for (WrittenNumber& number : state.written_numbers) {
    if (number.value == &given) number.home = given;
  }
}

// The caller may free its bytes after an execution.
void Method::Impl::release_inputs() {
  for (size_t i = 0; i < state.inputs.size(); ++i) {
    kernels::Tensor* tensor = at(state.inputs[i]).tensor;
    if (tensor == nullptr) continue;
    state.input_set[i] = false;
    if (!state.planned[static_cast<size_t>(state.inputs[i])]) tensor->data = nullptr;
  }
}

std::vector<float> probe_floats(const TensorView& value) {
  if (value.bytes.empty()) return {};
  if (value.dtype == DType::kI64) {
    std::vector<int64_t> integers(value.bytes.size() / sizeof(int64_t));
    std::memcpy(integers.data(), value.bytes.data(), integers.size() * sizeof(int64_t));
    return {integers.begin(), integers.end()};
  }
  if (value.dtype == DType::kF64) {
    std::vector<double> numbers(value.bytes.size() / sizeof(double));
    std::memcpy(numbers.data(), value.bytes.data(), numbers.size() * sizeof(double));
    return {numbers.begin(), numbers.end()};
  }
  if (value.dtype != DType::kF32) return {};
  std::vector<float> values(value.bytes.size() / sizeof(float));
  std::memcpy(values.data(), value.bytes.data(), values.size() * sizeof(float));
  return values;
}

namespace {

// The name of each instruction for a profile. Delegates count together, whatever their number.
std::vector<std::string> operators_of(const pte::Method& method, const MethodState& state) {
  std::vector<std::string> names = state.step_names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::holds_alternative<pte::DelegateCall>(method.instructions[i])) names[i] = "XNNPACK";
  }
  return names;
}

}  // namespace

Method::Method(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Method::~Method() = default;
Method::Method(Method&&) noexcept = default;
Method& Method::operator=(Method&&) noexcept = default;

Result<Method> Method::load(const pte::LoadedProgram& program, std::string_view method,
                            const std::vector<ExternalTensor>& external, ThreadPool& pool,
                            const MethodOptions& options, const std::string& file_name) {
  MemoryBudget budget(options.memory);
  std::vector<Method> methods = FERRY_TRY(
      load_all(program, std::span(&method, 1), external, pool, options, budget, file_name));
  return std::move(methods.front());
}

Result<std::vector<Method>> Method::load_all(const pte::LoadedProgram& program,
                                             std::span<const std::string_view> methods,
                                             const std::vector<ExternalTensor>& external,
                                             ThreadPool& pool, const MethodOptions& options,
                                             MemoryBudget& budget, const std::string& file_name) {
  std::vector<const pte::Method*> found;
  std::vector<std::unique_ptr<Impl>> impls;
  for (std::string_view name : methods) {
    found.push_back(program.program.find(name));
    if (found.back() == nullptr) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: there is no method {}", file_name, quoted(name)));
    }
    auto& impl = impls.emplace_back(std::make_unique<Impl>(pool));
    impl->state.file = file_name;
    impl->state.method = name;
    impl->state.poison = options.poison;
    impl->state.widen = options.widen;
    impl->state.round_rows = options.round_rows;
    impl->state.f64 = options.f64;
    impl->state.disturb = options.disturb;
    impl->state.own_bf16 = options.own_bf16;
    impl->state.kv_bits = options.kv_bits;
    impl->state.literal = options.literal || options.f64;
    FERRY_RETURN_IF_ERROR(check_operators(*found.back(), impl->state));
  }
  const uint64_t scale = options.f64 ? f64_scale(found) : 1;
  Result<std::shared_ptr<ProgramMemory>> memory =
      allocate_memory(found, budget, options.poison, scale,
                      options.kv_bits ? cache_bytes(found) : std::vector<uint64_t>());
  if (!memory) {
    Error error = std::move(memory).error();
    error.message = fmt::format("{}: {}", file_name, error.message);
    return Failure(std::move(error));
  }
  std::vector<Method> loaded;
  for (size_t i = 0; i < impls.size(); ++i) {
    impls[i]->state.memory = *memory;
    impls[i]->state.scale = scale;
    FERRY_RETURN_IF_ERROR(load_method(program, *found[i], external, budget, impls[i]->state));
    if (options.poison) impls[i]->state.outs.refill(true);
    if (options.profile != nullptr) {
      MethodState& state = impls[i]->state;
      state.profile = &options.profile->add_method(state.method, operators_of(*found[i], state),
                                                   state.step_weights);
    }
    loaded.push_back(Method(std::move(impls[i])));
  }
  for (const Method& method : loaded) {
    FERRY_RETURN_IF_ERROR(check_coded_memory(method.impl_->state));
  }
  (*memory)->fill(options.poison);
  return loaded;
}

size_t Method::input_count() const { return impl_->state.inputs.size(); }
size_t Method::output_count() const { return impl_->state.outputs.size(); }
TensorView Method::input_meta(size_t index) const {
  return impl_->meta(impl_->state.inputs[index]);
}
TensorView Method::output_meta(size_t index) const {
  return impl_->meta(impl_->state.outputs[index]);
}
bool Method::widens() const { return impl_->state.widen; }

Status Method::set_input(size_t index, const TensorView& tensor) {
  if (index >= impl_->state.inputs.size()) {
    return impl_->bad_port(index, fmt::format("there are {}", impl_->state.inputs.size()));
  }
  const bool number = impl_->at(impl_->state.inputs[index]).tensor == nullptr;
  FERRY_RETURN_IF_ERROR(number ? impl_->set_number(index, tensor)
                               : impl_->set_tensor(index, tensor));
  impl_->state.input_set[index] = true;
  if (number) impl_->keep_number(impl_->at(impl_->state.inputs[index]));
  return {};
}

void Method::want_rows(size_t index, int64_t begin, int64_t count) {
  runner::want_rows(impl_->state, index, begin, count);
}

Status Method::Impl::begin() {
  for (size_t i = 0; i < state.input_set.size(); ++i) {
    if (!state.input_set[i]) return bad_port(i, "is not set");
  }
  state.start();
  return {};
}

void Method::Impl::end() {
  release_inputs();
  if (state.f64) state.narrowed.resize(state.outputs.size());
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    const kernels::Value& value = at(state.outputs[i]);
    if (is_f64(value) && value.tensor->data != nullptr) {
      state.output_views[i] = shown(value, state.narrowed[i]);
    } else {
      set_view(value, state.output_views[i]);
    }
  }
}

Status Method::execute() {
  FERRY_RETURN_IF_ERROR(impl_->begin());
  Status status = run_steps(impl_->state, impl_->pool);
  impl_->end();
  return status;
}

Status Method::execute_together(std::span<Method* const> methods) {
  std::vector<MethodState*> states;
  for (Method* method : methods) {
    FERRY_RETURN_IF_ERROR(method->impl_->begin());
    states.push_back(&method->impl_->state);
  }
  if (methods.empty()) return {};
  Status status = run_together(states, methods.front()->impl_->pool);
  for (Method* method : methods) method->impl_->end();
  return status;
}

bool Method::can_be_strided(size_t index) const {
  const std::vector<bool>& strided = impl_->state.joined.strided;
  return index < strided.size() && strided[index];
}

void Method::set_stored_columns(int64_t columns) {
  kernels::Value* stored = impl_->state.joined.stored;
  if (stored != nullptr) stored->integer = columns;
}

bool Method::has_coded_caches() const { return !impl_->state.memory->coded.empty(); }

bool Method::output_is_text(size_t index) const {
  return impl_->at(impl_->state.outputs[index]).kind == kernels::Value::Kind::kString;
}

const TensorView& Method::output(size_t index) const { return impl_->state.output_views[index]; }

TensorView Method::output_f64(size_t index) const {
  return view_of(impl_->at(impl_->state.outputs[index]));
}

Status Method::observe(int32_t value, const std::function<void(const TensorView&)>& observer) {
  compute_again(impl_->state, value);
  want_all_rows(impl_->state);
  std::erase_if(impl_->state.observers, [&](const auto& other) { return other.value == value; });
  bool found = false;
  for (size_t i = 0; i < impl_->state.written.size(); ++i) {
    const auto& written = impl_->state.written[i];
    if (std::find(written.begin(), written.end(), value) == written.end()) continue;
    impl_->state.steps[i].observed = true;
    impl_->state.observers.push_back({i, value, observer});
    found = true;
  }
  if (found) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: method {}: nothing produces value {}", impl_->state.file,
                          quoted(impl_->state.method), value));
}

Result<TensorView> Method::value_meta(int32_t value) const {
  if (value < 0 || static_cast<size_t>(value) >= impl_->state.values.size() ||
      impl_->at(value).tensor == nullptr) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: method {}: value {} is no tensor", impl_->state.file,
                            quoted(impl_->state.method), value));
  }
  return impl_->meta(value);
}

Result<TensorView> Method::value(int32_t value) const {
  if (value < 0 || static_cast<size_t>(value) >= impl_->state.values.size() ||
      impl_->at(value).tensor == nullptr || impl_->at(value).tensor->data == nullptr ||
      impl_->state.is_coded(value)) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: method {}: value {} has no memory", impl_->state.file,
                            quoted(impl_->state.method), value));
  }
  return impl_->shown(impl_->at(value), impl_->narrow_value);
}

Status Method::overwrite(int32_t value, std::span<const std::byte> bytes) {
  const bool known = value >= 0 && static_cast<size_t>(value) < impl_->state.values.size();
  kernels::Tensor* tensor = known ? impl_->at(value).tensor : nullptr;
  std::vector<double> wide;
  if (tensor != nullptr && impl_->is_f64(impl_->at(value)) &&
      static_cast<uint64_t>(tensor->bytes()) == 2 * bytes.size()) {
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    wide.assign(values, values + bytes.size() / sizeof(float));
    bytes = std::as_bytes(std::span(wide));
  }
  if (tensor == nullptr || tensor->data == nullptr || !tensor->writable ||
      impl_->state.is_coded(value) || static_cast<uint64_t>(tensor->bytes()) != bytes.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: method {}: value {} cannot take {} bytes", impl_->state.file,
                            quoted(impl_->state.method), value, bytes.size()));
  }
  std::memcpy(tensor->data, bytes.data(), bytes.size());
  return {};
}

Status Method::overwrite_front(int32_t value, std::span<const std::byte> bytes) {
  const TensorView whole = FERRY_TRY(this->value(value));
  if (whole.bytes.size() == bytes.size()) return overwrite(value, bytes);
  kernels::Tensor* tensor = impl_->at(value).tensor;
  if (tensor == nullptr || !tensor->writable || impl_->is_f64(impl_->at(value)) ||
      whole.bytes.size() < bytes.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: method {}: value {} cannot take {} bytes", impl_->state.file,
                            quoted(impl_->state.method), value, bytes.size()));
  }
  std::ranges::copy(bytes, tensor->data);
  return {};
}

void Method::reset() { impl_->state.reset(); }

}  // namespace ferry::runner
