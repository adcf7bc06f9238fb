// Checks what a FlatBuffers verifier cannot: that indices, sizes and instructions make sense
// together.
#include "formats/pte/validate.h"

#include <fmt/format.h>

#include <set>
#include <unordered_set>

#include "core/checked.h"
#include "core/dim_order.h"
#include "core/text.h"
#include "formats/pte/decode.h"

namespace ferry::pte {
namespace {

class MethodCheck {
 public:
  MethodCheck(const Method& method, const DataSizes& extents, const std::string& file)
      : method_(method), extents_(extents), file_(file) {}

  Status run() {
    FERRY_RETURN_IF_ERROR(check_memory());
    FERRY_RETURN_IF_ERROR(check_ports());
    FERRY_RETURN_IF_ERROR(check_delegates());
    for (size_t i = 0; i < method_.values.size(); ++i) FERRY_RETURN_IF_ERROR(check_value(i));
    return check_instructions(method_, file_);
  }

 private:
  // -- messages
  auto method_error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code, fmt::format("{}: method {}: {}", file_, short_quoted(method_.name), what));
  }
  auto value_error(size_t index, const std::string& what,
                   ErrorCode code = ErrorCode::kBadInput) const {
    const auto* tensor = std::get_if<Tensor>(&method_.values[index]);
    const std::string fqn =
        tensor && !tensor->fqn.empty() ? fmt::format(" (tensor {})", quoted(tensor->fqn)) : "";
    return method_error(fmt::format("value {}: {}{}", index, what, fqn), code);
  }

  // -- helpers
  bool is_value(int32_t index) const {
    return index >= 0 && static_cast<size_t>(index) < method_.values.size();
  }
  template <class T>
  const T* get(int32_t index) const {
    return is_value(index) ? std::get_if<T>(&method_.values[static_cast<size_t>(index)]) : nullptr;
  }

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

  Status check_ports() const {
    for (auto [ports, kind] : {std::pair(&method_.inputs, "input"), {&method_.outputs, "output"}}) {
      for (int32_t index : *ports) {
        if (!is_value(index)) {
          return method_error(
              fmt::format("{} is value {} of {}", kind, index, method_.values.size()));
        }
        const auto* tensor = get<Tensor>(index);
        if (ports == &method_.inputs && tensor && is_constant(*tensor)) {
          return value_error(static_cast<size_t>(index), "an input is a constant");
        }
      }
    }
    return {};
  }

  Status check_delegates() const {
    for (const Delegate& delegate : method_.delegates) {
      if (delegate.backend.empty()) return method_error("a delegate without a backend");
      if (delegate.data >= extents_.delegates.size()) {
        return method_error(
            fmt::format("data {} of a delegate, of {}", delegate.data, extents_.delegates.size()));
      }
    }
    return {};
  }

  // -- values
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

  // The runtime resolves lists in order, so the tensors of a list must come before the list.
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

  const Method& method_;
  const DataSizes& extents_;
  const std::string& file_;
};

Status check_named_data(const Program& program, const DataSizes& extents, const std::string& name) {
  std::unordered_set<std::string_view> keys;
  for (const NamedData& named : program.named_data) {
    const auto error = [&](const std::string& what) {
      return bad_input(fmt::format("{}: {} (named data {})", name, what, quoted(named.key)));
    };
    if (named.key.empty() || named.key.find('\0') != std::string::npos) {
      return error("a key that is empty or holds a NUL");
    }
    if (!keys.insert(named.key).second) return error("its key occurs twice");
    if (named.data >= extents.named.size()) {
      return error(fmt::format("data {} of {}", named.data, extents.named.size()));
    }
  }
  return {};
}

}  // namespace

Status validate_program(const Program& program, const DataSizes& extents, const std::string& name) {
  if (program.methods.empty()) return bad_input(name + ": no method");
  std::set<std::string_view> names;
  for (const Method& method : program.methods) {
    if (method.name.empty()) return bad_input(name + ": a method without a name");
    if (!names.insert(method.name).second) {
      return bad_input(fmt::format("{}: two methods {}", name, short_quoted(method.name)));
    }
    FERRY_RETURN_IF_ERROR(MethodCheck(method, extents, name).run());
  }
  return check_named_data(program, extents, name);
}

}  // namespace ferry::pte
