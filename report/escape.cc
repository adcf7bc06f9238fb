#include "report/escape.h"

#include <algorithm>

namespace ferry::report {
namespace {

// Whether `rest` begins with U+2028 or U+2029, the line separators at which old JavaScript parsers
// end a string.
bool is_line_separator(std::string_view rest) {
  return rest.size() >= 3 && rest[0] == '\xe2' && rest[1] == '\x80' &&
         (rest[2] == '\xa8' || rest[2] == '\xa9');
}

// Returns the escape of the first character of `rest`; empty if the character needs none.
std::string_view json_escape(std::string_view rest) {
  switch (rest[0]) {
    case '<':
      return "\\u003c";
    case '>':
      return "\\u003e";
    case '&':
      return "\\u0026";
    default:
      break;
  }
  if (!is_line_separator(rest)) return {};
  return rest[2] == '\xa8' ? "\\u2028" : "\\u2029";
}

std::string_view html_escape(char c) {
  switch (c) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? "\xef\xbf\xbd" : "";
  }
}

}  // namespace

std::string json_in_script(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  while (!json.empty()) {
    const size_t plain = std::min(json.find_first_of("<>&\xe2"), json.size());
    out += json.substr(0, plain);
    json.remove_prefix(plain);
    const std::string_view escape = json.empty() ? "" : json_escape(json);
    // The byte 0xe2 also begins other characters, which stay as they are.
    out += escape.empty() ? json.substr(0, 1) : escape;
    json.remove_prefix(std::min(json.size(), is_line_separator(json) ? size_t{3} : size_t{1}));
  }
  return out;
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string_view escape = html_escape(c);
    escape.empty() ? out.push_back(c) : static_cast<void>(out += escape);
  }
  return out;
}

}  // namespace ferry::report
