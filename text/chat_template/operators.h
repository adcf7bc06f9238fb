// Arithmetic and slices of values.
#pragma once

#include <optional>
#include <string_view>

#include "text/chat_template/budget.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

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

}  // namespace ferry::text::chat
