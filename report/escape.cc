#include "report/escape.h"

namespace ferry::report {
namespace {

// U+2028 and U+2029, the line separators that old readers of scripts stop at.
bool is_line_separator(std::string_view rest) {
  return rest.size() >= 3 && rest[0] == '\xe2' && rest[1] == '\x80' &&
         (rest[2] == '\xa8' || rest[2] == '\xa9');
}

std::string_view json_escape(char c) {
  switch (c) {
    case '<':
      return "\\u003c";
    case '>':
      return "\\u003e";
    case '&':
      return "\\u0026";
    default:
      return {};
  }
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
  for (size_t i = 0; i < json.size(); ++i) {
    if (const std::string_view escape = json_escape(json[i]); !escape.empty()) {
      out += escape;
    } else if (is_line_separator(json.substr(i))) {
      out += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += json[i];
    }
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
