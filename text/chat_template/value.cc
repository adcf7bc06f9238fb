#include "text/chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::text::chat {
namespace {

// The depth and weight of a container, summed over its elements.
struct Extent {
  int depth = 1;
  size_t weight = 1;

  Status add(const Value& item, size_t key_size) {
    if (item.is<std::shared_ptr<Namespace>>() || item.is<std::shared_ptr<const Loop>>() ||
        item.is<Function>()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("a {} as an element is not supported", item.type()));
    }
    depth = std::max(depth, item.depth() + 1);
    weight += item.weight() + key_size + 1;
    if (depth > kMaxValueDepth) return bad_input("lists are nested too deeply");
    if (weight > kMaxValueWeight) return bad_input("a list grows too large");
    return {};
  }
};

}  // namespace

Result<Value> Value::list(std::vector<Value> items, bool tuple) {
  Extent extent;
  for (const Value& item : items) FERRY_RETURN_IF_ERROR(extent.add(item, 0));
  return Value(Data(ListPtr(
      std::make_shared<const List>(List{std::move(items), tuple, extent.depth, extent.weight}))));
}

Result<Value> Value::dict(std::vector<std::pair<std::string, Value>> items) {
  Extent extent;
  for (const auto& [key, item] : items) FERRY_RETURN_IF_ERROR(extent.add(item, key.size()));
  return Value(Data(
      DictPtr(std::make_shared<const Dict>(Dict{std::move(items), extent.depth, extent.weight}))));
}

const std::vector<Value>& Value::items() const { return std::get<ListPtr>(data_)->items; }
const std::vector<std::pair<std::string, Value>>& Value::members() const {
  return std::get<DictPtr>(data_)->items;
}

int64_t Value::integer() const {
  return is<bool>() ? static_cast<int64_t>(std::get<bool>(data_)) : std::get<int64_t>(data_);
}
double Value::real() const {
  return is<double>() ? std::get<double>(data_) : static_cast<double>(integer());
}

bool Value::truth() const {
  if (is<Undefined>() || is<None>()) return false;
  if (is_number()) return real() != 0;
  if (is_text()) return !str().empty();
  if (is<ListPtr>()) return !items().empty();
  if (is<DictPtr>()) return !members().empty();
  return true;
}

std::string_view Value::type() const {
  static constexpr std::string_view kNames[] = {"undefined", "NoneType", "bool",    "int",
                                                "float",     "str",      "list",    "dict",
                                                "namespace", "loop",     "function"};
  return kNames[data_.index()];
}

size_t Value::size() const {
  if (is_text()) return str().size();
  if (is<ListPtr>()) return items().size();
  if (is<DictPtr>()) return members().size();
  return 0;
}

size_t Value::weight() const {
  if (is<ListPtr>()) return std::get<ListPtr>(data_)->weight;
  if (is<DictPtr>()) return std::get<DictPtr>(data_)->weight;
  return is_text() ? str().size() : 1;
}

int Value::depth() const {
  if (is<ListPtr>()) return std::get<ListPtr>(data_)->depth;
  if (is<DictPtr>()) return std::get<DictPtr>(data_)->depth;
  return 0;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = std::ranges::find(items, key, &std::pair<std::string, Value>::first);
  return found == items.end() ? nullptr : &found->second;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.data().index() != b.data().index()) return false;
  if (a.is_text()) return a.str() == b.str();
  if (a.is<Undefined>() || a.is<None>()) return true;
  if (a.is<Value::ListPtr>()) {
    const bool alike =
        std::get<Value::ListPtr>(a.data())->tuple == std::get<Value::ListPtr>(b.data())->tuple;
    return alike && std::ranges::equal(a.items(), b.items(), equal);
  }
  if (a.is<Value::DictPtr>()) {
    if (a.size() != b.size()) return false;
    return std::ranges::all_of(a.members(), [&](const auto& member) {
      const Value* other = std::get<Value::DictPtr>(b.data())->find(member.first);
      return other != nullptr && equal(member.second, *other);
    });
  }
  return false;
}

Result<int> compare(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return sign(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return sign(a.real(), b.real());
  if (a.is_text() && b.is_text()) return sign(a.str(), b.str());
  return bad_input(fmt::format("{} and {} have no order", a.type(), b.type()));
}

}  // namespace ferry::text::chat
