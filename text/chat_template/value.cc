#include "text/chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "core/utf8.h"
#include "text/chat_template/text_methods.h"

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

namespace {

// Values as text (str(), repr() and json.dumps() of Python), and JSON as values.
// Writes the shortest digits that read back as the same number. The exponent has Python's form.
std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(d);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer, std::to_chars(buffer, std::end(buffer), d, format).ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string text_repr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const auto [c, size] = utf8::decode_valid(text, at);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      out += text.substr(at, size);
    }
    at += size;
  }
  return out + quote;
}

std::string list_repr(const Value& list) {
  const bool tuple = std::get<Value::ListPtr>(list.data())->tuple;
  std::string out = tuple ? "(" : "[";
  for (const Value& item : list.items()) {
    if (out.size() > 1) out += ", ";
    out += to_repr(item);
  }
  if (tuple && list.size() == 1) out += ",";
  return out + (tuple ? ")" : "]");
}

std::string dict_repr(const Value& dict) {
  std::string out = "{";
  for (const auto& [key, item] : dict.members()) {
    if (out.size() > 1) out += ", ";
    out += text_repr(key) + ": " + to_repr(item);
  }
  return out + "}";
}

std::string scalar_text(const Value& value) {
  if (value.is<bool>()) return value.truth() ? "True" : "False";
  if (value.is<int64_t>()) return std::to_string(value.integer());
  if (value.is<double>()) return real_text(value.real());
  if (value.is<None>()) return "None";
  if (value.is<Undefined>()) return "";
  return fmt::format("<{}>", value.type());
}

// -- JSON

void escape_unit(std::string& out, uint32_t unit) { out += fmt::format("\\u{:04x}", unit); }

std::string json_text(const std::string& text, bool ensure_ascii) {
  static constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kEscape = "\"\\bfnrt";
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto [c, size] = utf8::decode_valid(text, at);
    const size_t special = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string::npos;
    if (special != std::string::npos) {
      out += {'\\', kEscape[special]};
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      escape_unit(out, c);
    } else if (ensure_ascii && c >= 0x10000) {
      escape_unit(out, 0xD800 + ((c - 0x10000) >> 10));
      escape_unit(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out.append(text, at, size);
    }
    at += size;
  }
  return out + '"';
}

class JsonText {
 public:
  explicit JsonText(const JsonStyle& style) : style_(style) {}

  Status add(const Value& value) {
    if (text.size() > kMaxTextBytes) return bad_input("a text grows beyond 16 MiB");
    if (value.is<Value::ListPtr>()) return add_list(value);
    if (value.is<Value::DictPtr>()) return add_dict(value);
    if (value.is_text()) {
      text += json_text(value.str(), style_.ensure_ascii);
    } else if (value.is<bool>()) {
      text += value.truth() ? "true" : "false";
    } else if (value.is<None>()) {
      text += "null";
    } else if (value.is_number()) {
      text += scalar_text(value);
    } else {
      return bad_input(fmt::format("a value of type {} has no JSON", value.type()));
    }
    return {};
  }

  std::string text;

 private:
  Status add_list(const Value& list) {
    text += '[';
    ++level_;
    for (bool first = true; const Value& item : list.items()) {
      separate(std::exchange(first, false));
      FERRY_RETURN_IF_ERROR(add(item));
    }
    close(list.items().empty(), ']');
    return {};
  }

  Status add_dict(const Value& dict) {
    auto members = dict.members();
    if (style_.sort_keys) {
      std::ranges::stable_sort(members, {}, &std::pair<std::string, Value>::first);
    }
    text += '{';
    ++level_;
    for (bool first = true; const auto& [key, item] : members) {
      separate(std::exchange(first, false));
      text += json_text(key, style_.ensure_ascii) + style_.key_separator;
      FERRY_RETURN_IF_ERROR(add(item));
    }
    close(members.empty(), '}');
    return {};
  }

  void separate(bool first) {
    if (!first) text += style_.item_separator;
    break_line();
  }
  void close(bool empty, char bracket) {
    --level_;
    if (!empty) break_line();
    text += bracket;
  }
  void break_line() {
    if (style_.indent < 0) return;
    text += '\n';
    text.append(static_cast<size_t>(style_.indent) * level_, ' ');
  }

  const JsonStyle& style_;
  size_t level_ = 0;
};

}  // namespace

std::string to_text(const Value& value) { return value.is_text() ? value.str() : to_repr(value); }

std::string to_repr(const Value& value) {
  if (value.is_text()) return text_repr(value.str());
  if (value.is<Value::ListPtr>()) return list_repr(value);
  if (value.is<Value::DictPtr>()) return dict_repr(value);
  return scalar_text(value);
}

Result<std::string> to_json(const Value& value, const JsonStyle& style) {
  JsonText json(style);
  FERRY_RETURN_IF_ERROR(json.add(value));
  return std::move(json.text);
}

// -- JSON as values

namespace {

class ValueReader final : public JsonHandler {
 public:
  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(int64_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > INT64_MAX) return refuse("an integer beyond 64 bit");
    return add(Value::integer(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override { return add(Value::real(value)); }
  bool string(std::string& value) override { return add(Value::text(std::move(value))); }
  bool key(std::string& value) override {
    if (!open_.back().keys.insert(value).second) {
      return refuse(fmt::format("the key {} is there twice", quoted(value)));
    }
    open_.back().key = std::move(value);
    return true;
  }

  Value take() { return std::move(value_); }

 protected:
  bool begin_object() override { return begin(); }
  bool begin_array() override { return begin(); }
  bool close_object() override { return close(Value::dict(std::move(open_.back().members))); }
  bool close_array() override { return close(Value::list(std::move(open_.back().items))); }

 private:
  struct Container {
    std::string key;
    std::unordered_set<std::string> keys;
    std::vector<std::pair<std::string, Value>> members;
    std::vector<Value> items;
  };
  bool begin() {
    open_.emplace_back();
    return true;
  }
  bool close(Result<Value> value) {
    open_.pop_back();
    if (!value) return refuse(value.error().message);
    return add(std::move(*value));
  }
  bool add(Value value) {
    if (open_.empty()) {
      value_ = std::move(value);
    } else if (!open_.back().keys.empty()) {
      open_.back().members.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Container> open_;
  Value value_;
};

}  // namespace

Result<Value> parse_json_value(std::string_view json, const std::string& name) {
  ValueReader reader;
  FERRY_RETURN_IF_ERROR(parse_json_events(json, name, reader));
  return reader.take();
}

}  // namespace ferry::text::chat
