#include "text/chat_template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "text/chat_template/text_methods.h"

namespace ferry::text::chat {
namespace {

// The operands of one call of a filter.
struct Call {
  std::string_view name;
  const Value& value;
  const Arguments& arguments;
  Budget& budget;

  const Value* find(size_t place, std::string_view key) const { return arguments.find(place, key); }
  bool flag(size_t place, std::string_view key) const {
    const Value* given = find(place, key);
    return given != nullptr && given->truth();
  }
  Result<std::string> text(size_t place, std::string_view key, std::string otherwise) const {
    const Value* given = find(place, key);
    if (given == nullptr) return otherwise;
    if (given->is_text()) return given->str();
    return bad_input(fmt::format("{}: its {} is no string", name, key));
  }
};

Result<Value> trim(const Call& c) {
  FERRY_RETURN_IF_ERROR(c.arguments.check(1, {"chars"}));
  const std::string text = to_text(c.value);
  const Value* chars = c.find(0, "chars");
  if (chars == nullptr || chars->is<None>()) {
    return Value::text(std::string(strip(text, Side::kBoth)));
  }
  if (!chars->is_text()) return bad_input("trim: its chars is no string");
  FERRY_RETURN_IF_ERROR(c.budget.spend(strip_cost(text.size(), chars->size())));
  return Value::text(std::string(strip(text, Side::kBoth, chars->str())));
}

Result<Value> tojson(const Call& c) {
  FERRY_RETURN_IF_ERROR(
      c.arguments.check(4, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = c.flag(0, "ensure_ascii");
  style.sort_keys = c.flag(3, "sort_keys");
  if (const Value* indent = c.find(1, "indent"); indent != nullptr && !indent->is<None>()) {
    if (!indent->is_integer() || indent->integer() < 0 || indent->integer() > 16) {
      return fail(ErrorCode::kUnsupported, "tojson: this indent is not supported");
    }
    style.indent = indent->integer();
    style.item_separator = ",";
  }
  if (const Value* both = c.find(2, "separators"); both != nullptr && !both->is<None>()) {
    const bool pair = both->is<Value::ListPtr>() && both->size() == 2;
    if (!pair || !both->items()[0].is_text() || !both->items()[1].is_text() ||
        both->items()[0].size() > 16 || both->items()[1].size() > 16) {
      return fail(ErrorCode::kUnsupported, "tojson: these separators are not supported");
    }
    style.item_separator = both->items()[0].str();
    style.key_separator = both->items()[1].str();
  }
  return Value::text(FERRY_TRY(to_json(c.value, style)));
}

Result<Value> length(const Call& c) { return length_of(c.value); }
Result<Value> string(const Call& c) { return Value::text(to_text(c.value)); }
Result<Value> elements(const Call& c) {
  return Value::list(FERRY_TRY(elements_of(c.value, c.budget)));
}

Result<Value> fallback(const Call& c) {
  FERRY_RETURN_IF_ERROR(c.arguments.check(2, {"default_value", "boolean"}));
  const bool absent = c.value.is<Undefined>() || (c.flag(1, "boolean") && !c.value.truth());
  if (!absent) return c.value;
  const Value* other = c.find(0, "default_value");
  return other != nullptr ? *other : Value::text("");
}

Result<Value> join(const Call& c) {
  FERRY_RETURN_IF_ERROR(c.arguments.check(2, {"d", "attribute"}));
  const Value* by = c.find(0, "d");
  const std::string separator = by != nullptr ? to_text(*by) : "";
  const Value* attribute = c.find(1, "attribute");
  std::string out;
  for (bool first = true; const Value& item : FERRY_TRY(elements_of(c.value, c.budget))) {
    if (!std::exchange(first, false)) out += separator;
    out += to_text(attribute != nullptr ? FERRY_TRY(item_of(item, *attribute, c.budget)) : item);
    if (out.size() > kMaxTextBytes) return bad_input("a text grows beyond 16 MiB");
  }
  return Value::text(std::move(out));
}

Result<Value> replace_filter(const Call& c) {
  FERRY_RETURN_IF_ERROR(c.arguments.check(3, {"old", "new", "count"}));
  const std::string from = FERRY_TRY(c.text(0, "old", "")), to = FERRY_TRY(c.text(1, "new", ""));
  const Value* count = c.find(2, "count");
  const bool all = count == nullptr || !count->is_integer() || count->integer() < 0;
  return Value::text(FERRY_TRY(replace(
      to_text(c.value), from, to, all ? std::numeric_limits<int64_t>::max() : count->integer())));
}

Result<Value> change_case_filter(const Call& c) {
  const Case to = c.name == "upper"   ? Case::kUpper
                  : c.name == "lower" ? Case::kLower
                                      : Case::kCapitalize;
  return Value::text(FERRY_TRY(change_case(to_text(c.value), to)));
}

Result<Value> end(const Call& c) {
  const std::vector<Value> items = FERRY_TRY(elements_of(c.value, c.budget));
  if (items.empty()) return Value::undefined(std::string(c.name));
  return c.name == "first" ? items.front() : items.back();
}

Result<Value> reverse(const Call& c) {
  std::vector<Value> items = FERRY_TRY(elements_of(c.value, c.budget));
  std::ranges::reverse(items);
  if (!c.value.is_text()) return Value::list(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.str();
  return Value::text(std::move(out));
}

Result<Value> pairs(const Call& c) {
  if (c.value.is<Undefined>()) return Value::list({});
  if (!c.value.is<Value::DictPtr>()) return bad_input(fmt::format("{}: not a mapping", c.name));
  Value items = FERRY_TRY(call_method(c.value, "items", {}, c.budget));
  if (c.name == "items") return items;
  FERRY_RETURN_IF_ERROR(c.arguments.check(0, {}));
  std::vector<std::pair<std::string, Value>> keyed;
  for (const Value& item : items.items()) {
    keyed.emplace_back(FERRY_TRY(change_case(item.items()[0].str(), Case::kLower)), item);
  }
  std::ranges::stable_sort(keyed, {}, &std::pair<std::string, Value>::first);
  std::vector<Value> sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::list(std::move(sorted));
}

Result<Value> integer(const Call& c) {
  FERRY_RETURN_IF_ERROR(c.arguments.check(1, {"default"}));
  const Value* other = c.find(0, "default");
  const Value otherwise = other != nullptr ? *other : Value::integer(0);
  if (c.value.is_integer()) return Value::integer(c.value.integer());
  double real = 0;
  if (c.value.is<double>()) {
    real = c.value.real();
  } else if (c.value.is_text()) {
    const std::string_view text = strip(c.value.str(), Side::kBoth);
    int64_t n = 0;
    const char* const last = text.data() + text.size();
    const auto whole = std::from_chars(text.data(), last, n);
    if (whole.ec == std::errc() && whole.ptr == last) return Value::integer(n);
    const auto parsed = std::from_chars(text.data(), last, real);
    if (parsed.ec != std::errc() || parsed.ptr != last) return otherwise;
  } else {
    return otherwise;
  }
  if (!(std::fabs(real) < 9e18)) return otherwise;
  return Value::integer(static_cast<int64_t>(real));
}

// The filter has two forms: map(attribute='a', default=...) and map('filter', ...).
Result<Value> map(const Call& c) {
  const Value* attribute = c.find(SIZE_MAX, "attribute");
  std::vector<Value> out;
  Arguments rest;
  std::string name;
  if (attribute == nullptr) {
    name = FERRY_TRY(c.text(0, "filter", ""));
    if (name.empty() || !c.arguments.named.empty()) {
      return fail(ErrorCode::kUnsupported, "map: this form is not supported");
    }
    // Filters of Jinja are lazy: a chain of them would nest calls as deep as the template is long.
    if (name == "map") return fail(ErrorCode::kUnsupported, "map: map of map is not supported");
    rest.positional.assign(c.arguments.positional.begin() + 1, c.arguments.positional.end());
  } else {
    FERRY_RETURN_IF_ERROR(c.arguments.check(0, {"attribute", "default"}));
  }
  const Value* other = c.find(SIZE_MAX, "default");
  for (const Value& item : FERRY_TRY(elements_of(c.value, c.budget))) {
    if (attribute == nullptr) {
      out.push_back(FERRY_TRY(call_filter(name, item, rest, c.budget)));
      continue;
    }
    const Value found = FERRY_TRY(item_of(item, *attribute, c.budget));
    out.push_back(found.is<Undefined>() && other != nullptr ? *other : found);
  }
  return Value::list(std::move(out));
}

// The filters are select and reject('test', ...), selectattr and rejectattr('attribute', 'test',
// ...).
Result<Value> select(const Call& c) {
  FERRY_RETURN_IF_ERROR(c.arguments.check(8, {}));
  const bool by_attribute = c.name.ends_with("attr");
  const bool wanted = c.name.starts_with("select");
  const size_t first = by_attribute ? 1 : 0;
  const std::vector<Value>& given = c.arguments.positional;
  if (given.size() < first) return bad_input(fmt::format("{}: no attribute", c.name));
  const bool has_test = given.size() > first;
  const std::string test = FERRY_TRY(c.text(first, "test", ""));
  const std::vector<Value> rest(given.begin() + static_cast<std::ptrdiff_t>(first + has_test),
                                given.end());
  std::vector<Value> out;
  for (const Value& item : FERRY_TRY(elements_of(c.value, c.budget))) {
    const Value part = by_attribute ? FERRY_TRY(item_of(item, given[0], c.budget)) : item;
    const bool yes = has_test ? FERRY_TRY(call_test(test, part, rest, c.budget)) : part.truth();
    if (yes == wanted) out.push_back(item);
  }
  return Value::list(std::move(out));
}

struct Filter {
  std::string_view name;
  Result<Value> (*call)(const Call&);
};
constexpr Filter kFilters[] = {
    {"trim", trim},
    {"tojson", tojson},
    {"length", length},
    {"count", length},
    {"string", string},
    {"list", elements},
    {"default", fallback},
    {"d", fallback},
    {"join", join},
    {"replace", replace_filter},
    {"upper", change_case_filter},
    {"lower", change_case_filter},
    {"capitalize", change_case_filter},
    {"first", end},
    {"last", end},
    {"reverse", reverse},
    {"items", pairs},
    {"dictsort", pairs},
    {"int", integer},
    {"map", map},
    {"select", select},
    {"reject", select},
    {"selectattr", select},
    {"rejectattr", select},
};

}  // namespace

bool is_filter(std::string_view name) {
  return name == "safe" || std::ranges::count(kFilters, name, &Filter::name) > 0;
}

Result<Value> call_filter(std::string_view name, const Value& value, const Arguments& arguments,
                          Budget& budget) {
  FERRY_RETURN_IF_ERROR(budget.spend(value.weight() + kStepCost));
  const auto* filter = std::ranges::find(kFilters, name, &Filter::name);
  if (filter == std::end(kFilters)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the filter {} is not supported here", quoted(name)));
  }
  Value result = FERRY_TRY(filter->call({name, value, arguments, budget}));
  FERRY_RETURN_IF_ERROR(budget.spend(result.size()));
  return result;
}

// -- tests: value is NAME

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
