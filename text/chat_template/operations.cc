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

namespace {

// Reads elements and attributes of values, and calls their methods.
bool is_dict_method(std::string_view name) {
  static constexpr std::string_view kNames[] = {"clear",      "copy",   "fromkeys", "get",
                                                "items",      "keys",   "pop",      "popitem",
                                                "setdefault", "update", "values"};
  return std::ranges::count(kNames, name) > 0;
}

Failure undefined_error(const Value& value) {
  const std::string& name = std::get<Undefined>(value.data()).name;
  return bad_input(fmt::format("{} is undefined", name.empty() ? "a value" : quoted(name)));
}

Failure method_unsupported(const Value& value, const std::string& name) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("the {} method {} is not supported", value.type(), quoted(name)));
}

Value number(size_t n) { return Value::integer(static_cast<int64_t>(n)); }

Value loop_attribute(const Loop& loop, const std::string& name) {
  const size_t i = loop.index, n = loop.items->size();
  if (name == "index") return number(i + 1);
  if (name == "index0") return number(i);
  if (name == "revindex") return number(n - i);
  if (name == "revindex0") return number(n - i - 1);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i + 1 == n);
  if (name == "length") return number(n);
  // Recursive loops are not supported, so the depth is always that of one loop.
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem" && i > 0) return (*loop.items)[i - 1];
  if (name == "nextitem" && i + 1 < n) return (*loop.items)[i + 1];
  return Value::undefined(name);
}

Result<Value> pairs_of(const Value& dict) {
  std::vector<Value> out;
  for (const auto& [key, item] : dict.members()) {
    out.push_back(FERRY_TRY(Value::list({Value::text(key), item}, /*tuple=*/true)));
  }
  return Value::list(std::move(out));
}

Result<Value> call_dict_method(const Value& dict, const std::string& name,
                               const Arguments& arguments) {
  if (name == "get") {
    FERRY_RETURN_IF_ERROR(arguments.check(2, {}));
    if (arguments.positional.empty()) return bad_input("get() needs a key");
    const Value& key = arguments.positional[0];
    const Value* found =
        key.is_text() ? std::get<Value::DictPtr>(dict.data())->find(key.str()) : nullptr;
    if (found != nullptr) return *found;
    return arguments.positional.size() > 1 ? arguments.positional[1] : Value::none();
  }
  if (name == "items") return pairs_of(dict);
  if (name != "keys" && name != "values") return method_unsupported(dict, name);
  std::vector<Value> out;
  for (const auto& [key, item] : dict.members()) {
    out.push_back(name == "keys" ? Value::text(key) : item);
  }
  return Value::list(std::move(out));
}

}  // namespace

const Value* Arguments::find(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

Status Arguments::check(size_t places, std::initializer_list<std::string_view> names) const {
  if (positional.size() > places) return bad_input("too many arguments");
  for (const auto& [given, value] : named) {
    if (std::ranges::count(names, given) == 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("the argument {} is not supported", quoted(given)));
    }
  }
  return {};
}

Result<std::vector<Value>> elements_of(const Value& value, Budget& budget) {
  FERRY_RETURN_IF_ERROR(budget.spend(value.size() * kStepCost));
  if (value.is<Value::ListPtr>()) return value.items();
  std::vector<Value> out;
  if (value.is_text()) {
    for (std::string& c : characters_of(value.str())) out.push_back(Value::text(std::move(c)));
  } else if (value.is<Value::DictPtr>()) {
    for (const auto& [key, item] : value.members()) out.push_back(Value::text(key));
  } else if (!value.is<Undefined>()) {
    return bad_input(fmt::format("a value of type {} has no elements", value.type()));
  }
  return out;
}

Result<bool> contains(const Value& container, const Value& value, Budget& budget) {
  FERRY_RETURN_IF_ERROR(budget.spend(container.weight()));
  if (container.is_text()) {
    if (!value.is_text()) return bad_input("only a string can be in a string");
    FERRY_RETURN_IF_ERROR(budget.spend(search_cost(container.size(), value.size())));
    return container.str().find(value.str()) != std::string::npos;
  }
  if (container.is<Value::DictPtr>()) {
    return value.is_text() &&
           std::get<Value::DictPtr>(container.data())->find(value.str()) != nullptr;
  }
  const std::vector<Value> items = FERRY_TRY(elements_of(container, budget));
  return std::ranges::any_of(items, [&](const Value& item) { return equal(item, value); });
}

Result<Value> length_of(const Value& value) {
  if (value.is_text()) return number(count_characters(value.str()));
  if (value.is<Value::ListPtr>() || value.is<Value::DictPtr>() || value.is<Undefined>()) {
    return number(value.size());
  }
  return bad_input(fmt::format("a value of type {} has no length", value.type()));
}

Result<Value> attribute_of(const Value& value, const std::string& name, Budget& budget) {
  if (value.is<Undefined>()) return undefined_error(value);
  if (value.is<Value::DictPtr>()) FERRY_RETURN_IF_ERROR(budget.spend(value.size()));
  if (const auto* ns = std::get_if<std::shared_ptr<Namespace>>(&value.data())) {
    const auto found = (*ns)->items.find(name);
    return found == (*ns)->items.end() ? Value::undefined(name) : found->second;
  }
  if (const auto* loop = std::get_if<std::shared_ptr<const Loop>>(&value.data())) {
    return loop_attribute(**loop, name);
  }
  const bool method = (value.is<Value::DictPtr>() && is_dict_method(name)) ||
                      (value.is_text() && is_text_method(name));
  if (method) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the method {} without a call is not supported", quoted(name)));
  }
  if (value.is<Value::DictPtr>()) {
    const Value* found = std::get<Value::DictPtr>(value.data())->find(name);
    if (found != nullptr) return *found;
  }
  return Value::undefined(name);
}

Result<Value> item_of(const Value& value, const Value& key, Budget& budget) {
  if (key.is_text()) {
    if (value.is<Value::DictPtr>()) {
      FERRY_RETURN_IF_ERROR(budget.spend(value.size()));
      const Value* found = std::get<Value::DictPtr>(value.data())->find(key.str());
      if (found != nullptr) return *found;
    }
    return attribute_of(value, key.str(), budget);
  }
  if (value.is<Undefined>()) return undefined_error(value);
  const bool sequence = value.is_text() || value.is<Value::ListPtr>();
  if (!sequence || !key.is_integer()) return Value::undefined(to_text(key));
  FERRY_RETURN_IF_ERROR(budget.spend(value.is_text() ? value.size() : 1));
  std::vector<std::string> characters;
  if (value.is_text()) characters = characters_of(value.str());
  const auto size = static_cast<int64_t>(value.is_text() ? characters.size() : value.size());
  int64_t i = key.integer();
  if (i < 0 && i >= -size) i += size;
  if (i < 0 || i >= size) return Value::undefined(fmt::format("element {}", key.integer()));
  const auto at = static_cast<size_t>(i);
  return value.is_text() ? Value::text(characters[at]) : value.items()[at];
}

Result<Value> call_method(const Value& value, const std::string& name, const Arguments& arguments,
                          Budget& budget) {
  if (value.is<Undefined>()) return undefined_error(value);
  FERRY_RETURN_IF_ERROR(budget.spend(value.size() + kStepCost));
  for (const Value& given : arguments.positional)
    FERRY_RETURN_IF_ERROR(budget.spend(given.weight()));
  if (value.is<Value::DictPtr>()) {
    FERRY_RETURN_IF_ERROR(arguments.check(2, {}));
    return call_dict_method(value, name, arguments);
  }
  if (value.is_text()) {
    FERRY_RETURN_IF_ERROR(arguments.check(3, {}));
    if (!arguments.positional.empty()) {
      const size_t given = arguments.positional[0].size();
      FERRY_RETURN_IF_ERROR(budget.spend(name.ends_with("strip")
                                             ? strip_cost(value.size(), given)
                                             : search_cost(value.size(), given)));
    }
    Value made = FERRY_TRY(call_text_method(value.str(), name, arguments.positional));
    FERRY_RETURN_IF_ERROR(budget.spend(made.weight()));
    return made;
  }
  if (const auto* loop = std::get_if<std::shared_ptr<const Loop>>(&value.data())) {
    if (name == "cycle" && arguments.named.empty() && !arguments.positional.empty()) {
      return arguments.positional[(*loop)->index % arguments.positional.size()];
    }
  }
  return method_unsupported(value, name);
}

}  // namespace ferry::text::chat
