#include "text/chat_template/text_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/text.h"
#include "core/utf8.h"
#include "text/unicode.h"

namespace ferry::text::chat {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// Implements str.isspace() of Python.
bool is_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || unicode::is_space(c); }

bool has_character(std::string_view set, std::string_view character) {
  for (size_t at = 0; at < set.size(); at += utf8::decode_valid(set, at).size) {
    if (set.substr(at, utf8::decode_valid(set, at).size) == character) return true;
  }
  return false;
}

Result<Value> texts(std::vector<std::string> parts) {
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(Value::text(std::move(part)));
  return Value::list(std::move(items));
}

std::vector<std::string> split_at_spaces(std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (limit-- <= 0) {
      parts.emplace_back(strip(text, Side::kRight));
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(utf8::decode_valid(text, end).value)) {
      end += utf8::decode_valid(text, end).size;
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view by, int64_t limit,
                                  bool from_right) {
  std::vector<std::string> parts;
  while (limit-- > 0) {
    const size_t at = from_right ? text.rfind(by) : text.find(by);
    if (at == std::string_view::npos) break;
    parts.emplace_back(from_right ? text.substr(at + by.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + by.size());
  }
  parts.emplace_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

// The positions and types of the arguments of a method.
struct Parameters {
  std::string_view method;
  const std::vector<Value>& values;

  bool has(size_t i) const { return i < values.size() && !values[i].is<None>(); }
  Result<std::string_view> text(size_t i) const {
    if (i < values.size() && values[i].is_text()) return std::string_view(values[i].str());
    return bad_input(fmt::format("{}() needs a string as argument {}", method, i + 1));
  }
  Result<int64_t> integer(size_t i, int64_t fallback) const {
    if (i >= values.size()) return fallback;
    if (!values[i].is_integer()) {
      return bad_input(fmt::format("{}() needs an integer as argument {}", method, i + 1));
    }
    return values[i].integer();
  }
};

Result<Value> split_method(const std::string& text, const Parameters& a) {
  int64_t limit = FERRY_TRY(a.integer(1, -1));
  if (limit < 0) limit = kAll;
  const bool right = a.method == "rsplit";
  if (!a.has(0)) {
    if (right && limit != kAll) {
      return fail(ErrorCode::kUnsupported, "rsplit() at whitespace is not supported");
    }
    return texts(split_at_spaces(text, limit));
  }
  const std::string_view by = FERRY_TRY(a.text(0));
  if (by.empty()) return bad_input("split() at an empty string");
  return texts(split_at(text, by, limit, right));
}

Result<Value> strip_method(const std::string& text, const Parameters& a) {
  const Side side = a.method == "lstrip"   ? Side::kLeft
                    : a.method == "rstrip" ? Side::kRight
                                           : Side::kBoth;
  if (!a.has(0)) return Value::text(std::string(strip(text, side)));
  return Value::text(std::string(strip(text, side, FERRY_TRY(a.text(0)))));
}

Result<Value> affix_method(const std::string& text, const Parameters& a) {
  const auto matches = [&](const std::string& affix) {
    return a.method == "startswith" ? text.starts_with(affix) : text.ends_with(affix);
  };
  if (a.values.size() == 1 && a.values[0].is<Value::ListPtr>()) {
    for (const Value& affix : a.values[0].items()) {
      if (!affix.is_text()) return bad_input(fmt::format("{}() needs strings", a.method));
      if (matches(affix.str())) return Value::boolean(true);
    }
    return Value::boolean(false);
  }
  if (a.values.size() > 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}() with a range is not supported", a.method));
  }
  return Value::boolean(matches(std::string(FERRY_TRY(a.text(0)))));
}

Result<Value> replace_method(const std::string& text, const Parameters& a) {
  const int64_t count = FERRY_TRY(a.integer(2, -1));
  const std::string_view from = FERRY_TRY(a.text(0)), to = FERRY_TRY(a.text(1));
  return Value::text(FERRY_TRY(replace(text, from, to, count < 0 ? kAll : count)));
}

Result<Value> find_method(const std::string& text, const Parameters& a) {
  if (a.values.size() != 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}() with a range is not supported", a.method));
  }
  const std::string_view what = FERRY_TRY(a.text(0));
  if (a.method == "count") {
    if (what.empty()) return Value::integer(static_cast<int64_t>(count_characters(text)) + 1);
    return Value::integer(static_cast<int64_t>(split_at(text, what, kAll, false).size()) - 1);
  }
  const size_t at = a.method == "find" ? text.find(what) : text.rfind(what);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(
      static_cast<int64_t>(count_characters(std::string_view(text).substr(0, at))));
}

Result<Value> case_method(const std::string& text, const Parameters& a) {
  const Case to = a.method == "upper"   ? Case::kUpper
                  : a.method == "lower" ? Case::kLower
                  : a.method == "title" ? Case::kTitle
                                        : Case::kCapitalize;
  return Value::text(FERRY_TRY(change_case(text, to)));
}

Result<Value> join_method(const std::string& text, const Parameters& a) {
  if (a.values.size() != 1 || !a.values[0].is<Value::ListPtr>()) {
    return bad_input("join() needs a list");
  }
  std::string out;
  for (bool first = true; const Value& item : a.values[0].items()) {
    if (!item.is_text()) return bad_input("join() needs a list of strings");
    if (!std::exchange(first, false)) out += text;
    out += item.str();
    if (out.size() > kMaxTextBytes) return bad_input("a text grows beyond 16 MiB");
  }
  return Value::text(std::move(out));
}

Result<Value> remove_method(const std::string& text, const Parameters& a) {
  const std::string_view affix = FERRY_TRY(a.text(0));
  std::string_view rest = text;
  if (a.method == "removeprefix" && rest.starts_with(affix)) rest.remove_prefix(affix.size());
  if (a.method == "removesuffix" && rest.ends_with(affix)) rest.remove_suffix(affix.size());
  return Value::text(std::string(rest));
}

Result<Value> class_method(const std::string& text, const Parameters& a) {
  bool all = !text.empty();
  for (size_t at = 0; at < text.size(); at += utf8::decode_valid(text, at).size) {
    const char32_t c = utf8::decode_valid(text, at).value;
    if (a.method == "isspace") {
      all = all && is_space(c);
    } else if (c >= 0x80) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}() of text beyond ASCII is not supported", a.method));
    } else {
      all = all && c >= '0' && c <= '9';
    }
  }
  return Value::boolean(all);
}

struct Method {
  std::string_view name;
  size_t most;  // the largest number of arguments
  Result<Value> (*call)(const std::string&, const Parameters&);
};
constexpr Method kMethods[] = {
    {"strip", 1, strip_method},         {"lstrip", 1, strip_method},
    {"rstrip", 1, strip_method},        {"split", 2, split_method},
    {"rsplit", 2, split_method},        {"startswith", 3, affix_method},
    {"endswith", 3, affix_method},      {"replace", 3, replace_method},
    {"find", 3, find_method},           {"rfind", 3, find_method},
    {"count", 3, find_method},          {"upper", 0, case_method},
    {"lower", 0, case_method},          {"title", 0, case_method},
    {"capitalize", 0, case_method},     {"join", 1, join_method},
    {"removeprefix", 1, remove_method}, {"removesuffix", 1, remove_method},
    {"isspace", 0, class_method},       {"isdigit", 0, class_method},
};

}  // namespace

std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
  const auto goes = [&](size_t at, const utf8::Char& c) {
    return characters ? has_character(*characters, text.substr(at, c.size)) : is_space(c.value);
  };
  while (side != Side::kRight && !text.empty()) {
    const utf8::Char c = utf8::decode_valid(text, 0);
    if (!goes(0, c)) break;
    text.remove_prefix(c.size);
  }
  while (side != Side::kLeft && !text.empty()) {
    const utf8::Char c = utf8::decode_before(text, text.size());
    if (!goes(text.size() - c.size, c)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

Result<std::string> replace(std::string_view text, std::string_view from, std::string_view to,
                            int64_t count) {
  std::string out;
  while (count-- > 0) {
    // An empty `from` matches before each character and at the end.
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    if (out.size() > kMaxTextBytes) return bad_input("a text grows beyond 16 MiB");
    size_t skip = from.size();
    if (from.empty()) {
      if (text.empty()) return out;
      skip = utf8::decode_valid(text, 0).size;
      out.append(text.substr(0, skip));
    }
    text.remove_prefix(at + skip);
  }
  out.append(text);
  return out;
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t size = utf8::decode_valid(text, at).size;
    out.emplace_back(text.substr(at, size));
    at += size;
  }
  return out;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

Result<std::string> change_case(std::string_view text, Case to) {
  std::string out(text);
  bool begin = true;  // at the begin of a word (title) or of the text (capitalize)
  for (char& c : out) {
    if ((c & 0x80) != 0) {
      return fail(ErrorCode::kUnsupported, "upper or lower case beyond ASCII is not supported");
    }
    const bool up = to == Case::kUpper || (to >= Case::kTitle && begin);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) c = static_cast<char>(up ? c & ~0x20 : c | 0x20);
    begin = to == Case::kTitle && !letter;
  }
  return out;
}

bool is_text_method(std::string_view name) {
  return std::ranges::count(kMethods, name, &Method::name) > 0;
}

Result<Value> call_text_method(const std::string& text, std::string_view name,
                               const std::vector<Value>& arguments) {
  const auto* method = std::ranges::find(kMethods, name, &Method::name);
  if (method == std::end(kMethods)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the string method {} is not supported", quoted(name)));
  }
  if (arguments.size() > method->most) {
    return bad_input(fmt::format("{}() has too many arguments", name));
  }
  return method->call(text, {name, arguments});
}

}  // namespace ferry::text::chat
