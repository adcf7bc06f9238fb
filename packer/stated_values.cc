#include "packer/stated_values.h"

#include <fmt/format.h>

namespace ferry::packer {

Failure StatedValues::bad(std::string_view method, const std::string& what) const {
  return bad_input(fmt::format("{}: method {} {}", file_, method, what));
}

Result<std::optional<std::vector<pte::Value>>> StatedValues::list(std::string_view method) const {
  const pte::Method* found = program_.find(method);
  if (found == nullptr) return std::optional<std::vector<pte::Value>>();
  if (!found->inputs.empty() || !found->instructions.empty()) {
    return bad(method, "computes, expected one that states a value");
  }
  std::vector<pte::Value> values;
  for (const int32_t index : found->outputs) {
    if (index < 0 || static_cast<size_t>(index) >= found->values.size()) {
      return bad(method, "has an output that is no value");
    }
    values.push_back(found->values[static_cast<size_t>(index)]);
  }
  return std::optional(std::move(values));
}

template <class T>
Result<std::optional<T>> StatedValues::single(std::string_view method,
                                              std::string_view expected) const {
  const auto values = FERRY_TRY(list(method));
  if (!values) return std::optional<T>();
  const T* value = values->size() == 1 ? std::get_if<T>(values->data()) : nullptr;
  if (value == nullptr) return bad(method, fmt::format("does not give {}", expected));
  return std::optional<T>(*value);
}

Result<std::optional<int64_t>> StatedValues::integer(std::string_view method) const {
  return single<int64_t>(method, "one whole number");
}
Result<std::optional<double>> StatedValues::real(std::string_view method) const {
  return single<double>(method, "one number");
}
Result<std::optional<bool>> StatedValues::boolean(std::string_view method) const {
  return single<bool>(method, "true or false");
}

Result<std::optional<std::vector<int64_t>>> StatedValues::integers(std::string_view method) const {
  const auto values = FERRY_TRY(list(method));
  if (!values) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> numbers;
  for (const pte::Value& value : *values) {
    const auto* number = std::get_if<int64_t>(&value);
    if (number == nullptr) return bad(method, "does not give whole numbers");
    numbers.push_back(*number);
  }
  return std::optional(std::move(numbers));
}

Status StatedValues::expect(std::string_view method, int64_t number, std::string_view of) const {
  const std::optional<int64_t> stated = FERRY_TRY(integer(method));
  if (!stated || *stated == number) return {};
  return bad(method, fmt::format("gives {}, but {} has {}", *stated, of, number));
}

}  // namespace ferry::packer
