// Filters (value | name), tests (value is name), elements, attributes and methods of values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/budget.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns the argument at the position `place` or with the name `name`, or nullptr if it was not
  // given.
  const Value* find(size_t place, std::string_view name) const;
  // kBadInput for more than `places` arguments, kUnsupported for an argument whose name is not in
  // `names`.
  Status check(size_t places, std::initializer_list<std::string_view> names) const;
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
Result<Value> call_filter(std::string_view name, const Value& value, const Arguments& arguments,
                          Budget& budget);
Result<bool> call_test(std::string_view name, const Value& value,
                       const std::vector<Value>& arguments, Budget& budget);

// Returns the items that a loop over the value visits: elements of a list, keys of a dict,
// characters of a text.
Result<std::vector<Value>> elements_of(const Value& value, Budget& budget);
// Evaluates `value in container`.
Result<bool> contains(const Value& container, const Value& value, Budget& budget);
Result<Value> length_of(const Value& value);
// attribute_of() evaluates value.name, and the function below value[key]. A missing member gives an
// undefined value. kBadInput if `value` itself is undefined.
Result<Value> attribute_of(const Value& value, const std::string& name, Budget& budget);
Result<Value> item_of(const Value& value, const Value& key, Budget& budget);
// Calls value.name(arguments). kUnsupported for a method that is not implemented.
Result<Value> call_method(const Value& value, const std::string& name, const Arguments& arguments,
                          Budget& budget);

}  // namespace ferry::text::chat
