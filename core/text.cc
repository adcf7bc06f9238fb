#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace ferry {
namespace {

// Characters that change how a terminal or an editor shows the text around them: controls,
// direction marks, zero-width and line separators, private use, tags.
bool is_deceptive(uint32_t c) {
  struct Range {
    uint32_t first, last;
  };
  constexpr std::array<Range, 13> kRanges = {{{0x00, 0x1f},
                                              {0x7f, 0xa0},
                                              {0xad, 0xad},
                                              {0x61c, 0x61c},
                                              {0x115f, 0x1160},
                                              {0x180e, 0x180e},
                                              {0x2000, 0x200f},
                                              {0x2028, 0x202f},
                                              {0x205f, 0x206f},
                                              {0x3000, 0x3000},
                                              {0xe000, 0xf8ff},
                                              {0xfe00, 0xfe0f},
                                              {0xfeff, 0xfeff}}};
  for (const Range& range : kRanges) {
    if (c >= range.first && c <= range.last) return true;
  }
  return (c >= 0xfff0 && c <= 0xffff) || c >= 0xe0000;
}

std::string escaped(std::string_view text, const utf8::Char& c) {
  if (c.size == 0) return fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
  switch (c.value) {
    case '\'':
      return "\\'";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (!is_deceptive(c.value)) return std::string(text.substr(0, c.size));
  if (c.value < 0x80) return fmt::format("\\x{:02x}", static_cast<uint32_t>(c.value));
  return fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(c.value));
}

// Removes the first character of `text` and returns it, escaped if necessary.
std::string take_escaped(std::string_view& text) {
  const utf8::Char c = utf8::decode(text, 0);
  std::string out = escaped(text, c);
  text.remove_prefix(c.size == 0 ? 1 : c.size);
  return out;
}

}  // namespace

std::string Quoted::operator()(std::string_view untrusted, size_t max_bytes) const {
  std::string out = "'";
  while (!untrusted.empty()) {
    const std::string next = take_escaped(untrusted);
    if (out.size() + next.size() > max_bytes) return out + "...'";
    out += next;
  }
  return out + "'";
}

std::string printable(std::string_view untrusted) {
  std::string out;
  while (!untrusted.empty()) out += take_escaped(untrusted);
  return out;
}

std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string base_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || path.size() == 1) return std::string(path);
  return std::string(path.substr(slash + 1));
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  // The bound is below 1000, because 999.995 would print as 1000.00.
  while (value >= 999.995 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // Matching goes back to the last star only, so the time is at most the product of the two
  // lengths.
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::optional<int64_t> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

std::optional<std::string> from_hex(std::string_view text) {
  const auto value = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = value(text[i]), low = value(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

std::optional<uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMGT";
  constexpr double kLargest = 1e18;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string suffix(rest, end);
  if (suffix.size() > 1 && suffix.front() == ' ') suffix.erase(0, 1);
  for (char& c : suffix) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  if (suffix.ends_with('B')) suffix.pop_back();
  const bool is_binary = suffix.size() == 2 && suffix.ends_with('I');
  if (is_binary) suffix.pop_back();
  const size_t power = suffix.size() == 1 ? kSuffixes.find(suffix[0]) + 1 : 0;
  if (!suffix.empty() && power == 0) return std::nullopt;
  const double bytes = number * std::pow(is_binary ? 1024.0 : 1000.0, power);
  if (bytes < 1 || bytes > kLargest || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

}  // namespace ferry
