#include "cli/numbers.h"

#include <charconv>
#include <cmath>

namespace ferry::cli {
namespace {

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) { return parse_whole<int64_t>(text); }

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMGT";
  constexpr size_t kKilo = 0;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (suffix.ends_with('B')) suffix.remove_suffix(1);
  const bool binary = suffix.size() == 2 && suffix.ends_with('i');
  if (binary) suffix.remove_suffix(1);
  size_t power = suffix.size() == 1 ? kSuffixes.find(suffix[0]) + 1 : 0;
  if (suffix == "k" && !binary) power = kKilo + 1;  // the symbol of the SI
  const bool known = suffix.empty() || power > 0;
  const double bytes = number * std::pow(binary ? 1024.0 : 1000.0, power);
  const bool in_range = bytes >= 1 && bytes <= 1e18 && bytes == std::floor(bytes);
  if (error != std::errc() || !known || !in_range) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

Result<std::optional<uint64_t>> memory_limit(const std::optional<int64_t>& bytes) {
  if (!bytes) return std::optional<uint64_t>();
  if (*bytes < 1) return fail(ErrorCode::kUsage, "--memory must be at least 1");
  return std::optional<uint64_t>(static_cast<uint64_t>(*bytes));
}

}  // namespace ferry::cli
