#include "core/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "core/utf8.h"

namespace ferry {
namespace {

// Returns the escape of a character that some readers of one document per line take for a line
// break, or nullptr.
const char* line_break(std::string_view text) {
  if (text.starts_with("\xC2\x85")) return "\\u0085";
  if (text.starts_with("\xE2\x80\xA8")) return "\\u2028";
  if (text.starts_with("\xE2\x80\xA9")) return "\\u2029";
  return nullptr;
}

// Returns the letter of a short escape, or 0 for characters that have none.
char short_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
      return c;
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_string(name);
  text_ += ':';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::value(double d) {
  return raw(std::isfinite(d) ? fmt::format("{}", d) : "null");
}

JsonWriter& JsonWriter::value(const std::vector<std::string>& texts) {
  begin_array();
  for (const std::string& text : texts) value(std::string_view(text));
  return end_array();
}

JsonWriter& JsonWriter::value(const Shape& shape) {
  begin_array();
  for (int64_t dim : shape) value(dim);
  return end_array();
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = utf8::decode(text, 0).size;
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (const char letter = short_escape(c)) {
      text_ += '\\';
      text_ += letter;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(c));
    } else if (const char* escaped = line_break(text)) {
      text_ += escaped;
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

std::string JsonWriter::take() {
  text_ += '\n';
  first_ = true;
  return std::exchange(text_, {});
}

}  // namespace ferry
