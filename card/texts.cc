#include "card/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/text.h"
#include "core/utf8.h"

namespace ferry::card {
namespace {

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Words that YAML 1.1 or 1.2 reads as something other than a text.
bool is_yaml_word(std::string_view text) {
  constexpr std::array<std::string_view, 10> kWords = {"y",     "n",  "yes", "no",   "true",
                                                       "false", "on", "off", "null", "nan"};
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return std::ranges::equal(text, word, [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
    });
  });
}

// Only letters at the beginning: numbers, dates and times of YAML begin otherwise.
bool is_plain_yaml(std::string_view text) {
  if (text.empty() || text.size() > 100 || is_yaml_word(text)) return false;
  if (!is_alphanumeric(text.front()) || (text.front() >= '0' && text.front() <= '9')) return false;
  return std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-' || c == '/';
  });
}

// Whether YAML lets a character stand in quotes as it is.
bool is_yaml_printable(char32_t c) {
  return (c >= 0x20 && c < 0x7F) || (c >= 0xA0 && c < 0xD800 && c != 0x2028 && c != 0x2029) ||
         (c >= 0xE000 && c < 0xFEFF) || (c > 0xFEFF && c < 0xFFFE) || c >= 0x10000;
}

}  // namespace

std::string markdown(std::string_view untrusted) {
  constexpr std::string_view kMarkup = "\\`*_{}[]<>()#!|~&$@\"";
  const std::string safe = printable(utf8::make_valid(untrusted));
  std::string out;
  for (size_t i = 0; i < safe.size(); ++i) {
    const char c = safe[i];
    // GFM makes links of what begins with "www.".
    const bool is_dot = c == '.' && i >= 3 && (safe[i - 1] == 'w' || safe[i - 1] == 'W');
    // A colon makes links, as in "http://", and pictures of words between two of them.
    const bool is_colon = c == ':' && i + 1 < safe.size() && safe[i + 1] != ' ';
    // printable() has a backslash before quotes, which Markdown does not need.
    if (c == '\\' && i + 1 < safe.size() && safe[i + 1] == '\'') continue;
    if (is_dot || is_colon || kMarkup.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string yaml_scalar(std::string_view untrusted) {
  if (is_plain_yaml(untrusted)) return std::string(untrusted);
  const std::string text = utf8::make_valid(untrusted);
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const utf8::Char c = utf8::decode_valid(text, i);
    if (c.value == '"' || c.value == '\\') {
      out += '\\';
      out += text[i];
    } else if (is_yaml_printable(c.value)) {
      out.append(text, i, c.size);
    } else if (c.value <= 0xFFFF) {
      fmt::format_to(std::back_inserter(out), "\\u{:04X}", static_cast<uint32_t>(c.value));
    } else {
      fmt::format_to(std::back_inserter(out), "\\U{:08X}", static_cast<uint32_t>(c.value));
    }
    i += c.size;
  }
  return out + "\"";
}

bool is_hub_name(std::string_view text) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.size() <= 96 && part.front() != '.' && part.front() != '-' &&
           part.back() != '.' && part.back() != '-' && part.find("..") == std::string_view::npos &&
           part.find("--") == std::string_view::npos && std::ranges::all_of(part, [](char c) {
             return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
           });
  };
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_part(text);
  return is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

bool is_web_address(std::string_view text) {
  const size_t scheme = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : 0;
  if (scheme == 0 || text.size() <= scheme || !is_alphanumeric(text[scheme])) return false;
  return std::ranges::all_of(text, [](char c) {
    constexpr std::string_view kOthers = "-._~/?#=&+,:@";
    return is_alphanumeric(c) || kOthers.find(c) != std::string_view::npos;
  });
}

}  // namespace ferry::card
