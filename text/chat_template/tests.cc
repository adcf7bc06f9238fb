// Tests: value is NAME.

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "text/chat_template/filters.h"

namespace ferry::text::chat {
namespace {

using Kind = bool (*)(const Value&);
struct KindTest {
  std::string_view name;
  Kind holds;
};
constexpr KindTest kKinds[] = {
    {"defined", [](const Value& v) { return !v.is<Undefined>(); }},
    {"undefined", [](const Value& v) { return v.is<Undefined>(); }},
    {"none", [](const Value& v) { return v.is<None>(); }},
    {"string", [](const Value& v) { return v.is_text(); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"integer", [](const Value& v) { return v.is<int64_t>(); }},
    {"float", [](const Value& v) { return v.is<double>(); }},
    {"boolean", [](const Value& v) { return v.is<bool>(); }},
    {"true", [](const Value& v) { return v.is<bool>() && v.truth(); }},
    {"false", [](const Value& v) { return v.is<bool>() && !v.truth(); }},
    {"mapping", [](const Value& v) { return v.is<Value::DictPtr>(); }},
    {"callable", [](const Value& v) { return v.is<Function>() || v.is<Undefined>(); }},
    {"iterable",
     [](const Value& v) {
       return v.is_text() || v.is<Value::ListPtr>() || v.is<Value::DictPtr>() || v.is<Undefined>();
     }},
    {"sequence",
     [](const Value& v) {
       return v.is_text() || v.is<Value::ListPtr>() || v.is<Value::DictPtr>() || v.is<Undefined>();
     }},
};

// The results of a comparison for which a test of order is true.
struct OrderTest {
  std::string_view name;
  bool less, same, more;
};
constexpr OrderTest kOrders[] = {
    {"lt", true, false, false}, {"lessthan", true, false, false},    {"le", true, true, false},
    {"gt", false, false, true}, {"greaterthan", false, false, true}, {"ge", false, true, true},
};
constexpr std::string_view kOthers[] = {"eq",  "equalto", "ne",          "in",
                                        "odd", "even",    "divisibleby", "sameas"};

Result<bool> divisible(const Value& value, const Value& by) {
  if (!value.is_integer() || !by.is_integer()) return bad_input("only integers are divisible");
  if (by.integer() == 0) return bad_input("division by zero");
  return by.integer() == -1 || value.integer() % by.integer() == 0;
}

// `is sameas` of Jinja: only constants have an identity.
Result<bool> same(const Value& a, const Value& b) {
  if (a.is<bool>() || a.is<None>() || b.is<bool>() || b.is<None>()) {
    return a.data().index() == b.data().index() && equal(a, b);
  }
  return fail(ErrorCode::kUnsupported,
              "sameas of other than true, false and none is not supported");
}

}  // namespace

bool is_test(std::string_view name) {
  return std::ranges::count(kKinds, name, &KindTest::name) > 0 ||
         std::ranges::count(kOrders, name, &OrderTest::name) > 0 ||
         std::ranges::count(kOthers, name) > 0;
}

Result<bool> call_test(std::string_view name, const Value& value,
                       const std::vector<Value>& arguments, Budget& budget) {
  FERRY_RETURN_IF_ERROR(budget.spend(value.size() + kStepCost));
  const auto* kind = std::ranges::find(kKinds, name, &KindTest::name);
  const bool binary = kind == std::end(kKinds) && name != "odd" && name != "even";
  if (arguments.size() != (binary ? 1U : 0U)) {
    return bad_input(fmt::format("the test {} has other arguments", quoted(name)));
  }
  if (kind != std::end(kKinds)) return kind->holds(value);
  if (name == "odd" || name == "even") {
    return FERRY_TRY(divisible(value, Value::integer(2))) == (name == "even");
  }
  const Value& other = arguments[0];
  if (name == "eq" || name == "equalto" || name == "ne") {
    FERRY_RETURN_IF_ERROR(budget.spend(value.weight()));
    return equal(value, other) == (name != "ne");
  }
  if (name == "in") return contains(other, value, budget);
  if (name == "divisibleby") return divisible(value, other);
  if (name == "sameas") return same(value, other);
  const auto* order = std::ranges::find(kOrders, name, &OrderTest::name);
  if (order == std::end(kOrders)) {
    return fail(ErrorCode::kUnsupported, fmt::format("the test {} is not supported", quoted(name)));
  }
  const int sign = FERRY_TRY(compare(value, other));
  return sign < 0 ? order->less : sign > 0 ? order->more : order->same;
}

}  // namespace ferry::text::chat
