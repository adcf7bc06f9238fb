// Filters (value | name), tests (value is name), and what else the evaluator needs of values.
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

  // By place or by name; nullptr where it is not given.
  const Value* find(size_t place, std::string_view name) const;
  // kBadInput for more than `places`, kUnsupported for a name that is not in `names`.
  Status check(size_t places, std::initializer_list<std::string_view> names) const;
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
Result<Value> call_filter(std::string_view name, const Value& value, const Arguments& arguments,
                          Budget& budget);
Result<bool> call_test(std::string_view name, const Value& value,
                       const std::vector<Value>& arguments, Budget& budget);

// What a loop over the value sees: elements, keys, characters.
Result<std::vector<Value>> elements_of(const Value& value, Budget& budget);
// a in b.
Result<bool> contains(const Value& container, const Value& value, Budget& budget);
Result<Value> length_of(const Value& value);
// value.name and value[key]; what is not there is undefined. Of an undefined value: kBadInput.
Result<Value> attribute_of(const Value& value, const std::string& name, Budget& budget);
Result<Value> item_of(const Value& value, const Value& key, Budget& budget);
// value.name(arguments). kUnsupported for a method that is not built.
Result<Value> call_method(const Value& value, const std::string& name, const Arguments& arguments,
                          Budget& budget);

}  // namespace ferry::text::chat
