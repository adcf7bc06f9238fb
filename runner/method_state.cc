#include "runner/method_state.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::runner {

void set_view(const kernels::Tensor& tensor, const kernels::Dims& sizes, TensorView& view) {
  view.dtype = tensor.dtype;
  view.shape.assign(sizes.begin(), sizes.end());
  view.bytes = {};
  if (tensor.data != nullptr) view.bytes = {tensor.data, static_cast<size_t>(tensor.bytes())};
}

void set_view(const kernels::Value& value, TensorView& view) {
  if (value.tensor != nullptr) return set_view(*value.tensor, value.tensor->sizes, view);
  view.shape.clear();
  switch (value.kind) {
    case kernels::Value::Kind::kBool:
      view.dtype = DType::kBool;
      view.bytes = std::as_bytes(std::span(&value.boolean, 1));
      break;
    case kernels::Value::Kind::kDouble:
      view.dtype = DType::kF64;
      view.bytes = std::as_bytes(std::span(&value.real, 1));
      break;
    case kernels::Value::Kind::kString:
      view.dtype = DType::kU8;
      view.shape = {static_cast<int64_t>(value.text.size())};
      view.bytes = std::as_bytes(std::span(value.text));
      break;
    default:
      view.dtype = DType::kI64;
      view.bytes = std::as_bytes(std::span(&value.integer, 1));
  }
}

TensorView view_of(const kernels::Value& value) {
  TensorView view;
  set_view(value, view);
  return view;
}

void move_value(const kernels::Value& from, kernels::Value& to) {
  if (from.tensor == nullptr) {
    to.boolean = from.boolean;
    to.integer = from.integer;
    to.real = from.real;
  } else if (from.tensor != to.tensor) {
    const int32_t id = to.tensor->id;
    *to.tensor = *from.tensor;
    to.tensor->id = id;
  }
}

std::byte* no_bytes() {
  alignas(64) static std::byte nothing[64];
  return nothing;
}

Error MethodState::at_step(size_t step, Error error) const {
  error.message = fmt::format("{}: method {}, instruction {} ({}): {}", file, quoted(method), step,
                              step_names[step], error.message);
  return error;
}

Failure MethodState::error(ErrorCode code, const std::string& message) const {
  return fail(code, fmt::format("{}: method {}: {}", file, quoted(method), message));
}

Failure MethodState::bad(const std::string& message) const {
  return error(ErrorCode::kBadInput, message);
}

void MethodState::start() {
  for (const Rebound& each : rebound) *each.tensor = each.home;
  for (const WrittenNumber& number : written_numbers) move_value(number.home, *number.value);
}

void MethodState::reset() {
  memory->fill(poison);
  outs.refill(poison);
  start();
  for (kernels::Tensor& tensor : tensors) {
    tensor.sizes = bounds[static_cast<size_t>(tensor.id)];
    tensor.numel = kernels::numel(tensor.sizes.span());
  }
}

}  // namespace ferry::runner
