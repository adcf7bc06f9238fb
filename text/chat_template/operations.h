// Operations on values: operators, filters (value | name), tests (value is name), elements,
// attributes and methods; and Budget, which bounds their work.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

// Budget bounds the work that one rendering may still do. Templates are untrusted, and a few lines
// can demand unbounded work.

// Work is counted in units: one for each byte or element that is read or made, kStepCost for each
// node and for each element of a loop. The limit allows two million steps. A chat of a thousand
// messages takes about ten thousand.
inline constexpr size_t kMaxWork = size_t{256} << 20;
inline constexpr size_t kStepCost = 128;

// Return the cost of a search for `pattern` bytes in `text` bytes, and of stripping a set of
// `characters` bytes from the ends of `text` bytes.
constexpr size_t search_cost(size_t text, size_t pattern) { return text * (pattern / 16); }
constexpr size_t strip_cost(size_t text, size_t characters) { return text * characters; }

class Budget {
 public:
  Status spend(size_t cost) {
    if (cost > left_) return bad_input("the template takes too much work");
    left_ -= cost;
    return {};
  }

 private:
  size_t left_ = kMaxWork;
};

// op: + - * / // % ** ~
Result<Value> combine(std::string_view op, const Value& a, const Value& b, Budget& budget);
Result<Value> negated(const Value& value);
// op: == != < <= > >= in "not in"
Result<bool> relation(std::string_view op, const Value& a, const Value& b, Budget& budget);

struct SliceBounds {
  std::optional<int64_t> begin, end, step;
};
// Takes a slice of a list or a text.
Result<Value> slice(const Value& value, const SliceBounds& bounds, Budget& budget);

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
