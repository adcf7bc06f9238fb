// Reads elements and attributes of values, and calls their methods.

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/text_methods.h"

namespace ferry::text::chat {
namespace {

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
