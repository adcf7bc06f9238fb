#include "core/byte_size.h"

#include <charconv>
#include <cmath>
#include <string>

namespace ferry {

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
