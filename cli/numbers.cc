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

Result<std::optional<uint64_t>> memory_limit(const std::optional<int64_t>& bytes) {
  if (!bytes) return std::optional<uint64_t>();
  if (*bytes < 1) return fail(ErrorCode::kUsage, "--memory must be at least 1");
  return std::optional<uint64_t>(static_cast<uint64_t>(*bytes));
}

}  // namespace ferry::cli
