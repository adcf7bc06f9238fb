#include "text/chat_template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "text/chat_template/text_methods.h"

namespace ferry::text::chat {
namespace {

Failure mismatch(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is<Undefined>()) {
      const std::string& name = std::get<Undefined>(value->data()).name;
      return bad_input(fmt::format("{} is undefined", name.empty() ? "a value" : quoted(name)));
    }
  }
  return bad_input(fmt::format("{} {} {} makes no sense", a.type(), op, b.type()));
}
Failure too_large() {
  return fail(ErrorCode::kUnsupported, "an integer beyond 64 bit is not supported");
}

Result<Value> joined(const std::string& a, const std::string& b, Budget& budget) {
  FERRY_RETURN_IF_ERROR(budget.spend(a.size() + b.size()));
  if (a.size() + b.size() > kMaxTextBytes) return bad_input("a text grows beyond 16 MiB");
  return Value::text(a + b);
}

Result<Value> add_lists(const Value& a, const Value& b, Budget& budget) {
  FERRY_RETURN_IF_ERROR(budget.spend((a.size() + b.size()) * kStepCost));
  const bool tuple = std::get<Value::ListPtr>(a.data())->tuple;
  if (tuple != std::get<Value::ListPtr>(b.data())->tuple) return mismatch("+", a, b);
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return Value::list(std::move(items), tuple);
}

Result<Value> repeated(const Value& value, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::clamp<int64_t>(times, 0, kMaxTextBytes + 1));
  if (value.is<Value::ListPtr>()) {
    return fail(ErrorCode::kUnsupported, "a repeated list is not supported");
  }
  if (value.size() * count > kMaxTextBytes) return bad_input("a text grows beyond 16 MiB");
  FERRY_RETURN_IF_ERROR(budget.spend(value.size() * count));
  std::string out;
  for (size_t i = 0; i < count && value.size() > 0; ++i) out += value.str();
  return Value::text(std::move(out));
}

Result<Value> combine_integers(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+")
    return __builtin_add_overflow(a, b, &out) ? too_large() : Result<Value>(Value::integer(out));
  if (op == "-")
    return __builtin_sub_overflow(a, b, &out) ? too_large() : Result<Value>(Value::integer(out));
  if (op == "*")
    return __builtin_mul_overflow(a, b, &out) ? too_large() : Result<Value>(Value::integer(out));
  if (b == 0) return bad_input("division by zero");
  if (b == -1) return op == "%" ? Result<Value>(Value::integer(0)) : combine_integers("-", 0, a);
  // The quotient is rounded towards minus infinity, so the remainder has the sign of b.
  const bool inexact = a % b != 0 && ((a < 0) != (b < 0));
  return Value::integer(op == "%" ? a % b + (inexact ? b : 0) : a / b - (inexact ? 1 : 0));
}

Result<Value> combine_numbers(std::string_view op, const Value& a, const Value& b) {
  if (op == "**") return fail(ErrorCode::kUnsupported, "the operator ** is not supported");
  if (a.is_integer() && b.is_integer() && op != "/") {
    return combine_integers(op, a.integer(), b.integer());
  }
  const double x = a.real(), y = b.real();
  if (op == "+") return Value::real(x + y);
  if (op == "-") return Value::real(x - y);
  if (op == "*") return Value::real(x * y);
  if (y == 0) return bad_input("division by zero");
  if (op == "/") return Value::real(x / y);
  const double floor = std::floor(x / y);
  return Value::real(op == "//" ? floor : x - y * floor);
}

}  // namespace

Result<Value> combine(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    FERRY_RETURN_IF_ERROR(budget.spend(a.weight() + b.weight()));
    return joined(to_text(a), to_text(b), budget);
  }
  if (a.is_number() && b.is_number()) return combine_numbers(op, a, b);
  if (op == "+" && a.is_text() && b.is_text()) return joined(a.str(), b.str(), budget);
  if (op == "+" && a.is<Value::ListPtr>() && b.is<Value::ListPtr>()) {
    return add_lists(a, b, budget);
  }
  const auto repeats = [](const Value& value) {
    return value.is_text() || value.is<Value::ListPtr>();
  };
  if (op == "*" && repeats(a) && b.is_integer()) return repeated(a, b.integer(), budget);
  if (op == "*" && repeats(b) && a.is_integer()) return repeated(b, a.integer(), budget);
  if (op == "%" && a.is_text()) {
    return fail(ErrorCode::kUnsupported, "% of a string is not supported");
  }
  return mismatch(op, a, b);
}

Result<Value> negated(const Value& value) {
  if (value.is<double>()) return Value::real(-value.real());
  if (value.is_integer()) return combine_integers("-", 0, value.integer());
  return mismatch("-", Value::integer(0), value);
}

Result<bool> relation(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "in" || op == "not in") return FERRY_TRY(contains(b, a, budget)) == (op == "in");
  FERRY_RETURN_IF_ERROR(budget.spend(std::min(a.weight(), b.weight())));
  if (a.is<Value::DictPtr>() && b.is<Value::DictPtr>()) {
    FERRY_RETURN_IF_ERROR(budget.spend(a.size() * b.size()));
  }
  if (op == "==" || op == "!=") return equal(a, b) == (op == "==");
  if (a.is<Undefined>() || b.is<Undefined>()) return mismatch(op, a, b);
  const int sign = FERRY_TRY(compare(a, b));
  if (op == "<") return sign < 0;
  if (op == "<=") return sign <= 0;
  return op == ">" ? sign > 0 : sign >= 0;
}

Result<Value> slice(const Value& value, const SliceBounds& bounds, Budget& budget) {
  if (!value.is_text() && !value.is<Value::ListPtr>()) {
    return mismatch("[]", value, Value::list({}).value());
  }
  const std::vector<Value> items = FERRY_TRY(elements_of(value, budget));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t step = std::clamp<int64_t>(bounds.step.value_or(1), -size - 1, size + 1);
  if (step == 0) return bad_input("a slice with step 0");
  // Returns the position of a bound. A negative bound counts from the end. The position is limited
  // to the range that the direction of the slice can reach.
  const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t at = *bound < 0 ? *bound + size : *bound;
    return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t begin = place(bounds.begin, step > 0 ? 0 : size - 1);
  const int64_t end = place(bounds.end, step > 0 ? size : -1);
  std::vector<Value> out;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    out.push_back(items[static_cast<size_t>(i)]);
  }
  if (value.is<Value::ListPtr>()) {
    return Value::list(std::move(out), std::get<Value::ListPtr>(value.data())->tuple);
  }
  std::string text;
  for (const Value& item : out) text += item.str();
  return Value::text(std::move(text));
}

}  // namespace ferry::text::chat
