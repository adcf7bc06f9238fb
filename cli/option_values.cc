#include "cli/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "core/text.h"

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

Result<runner::DecodeMode> parse_mode(const std::string& name) {
  const auto found = std::ranges::find(runner::kDecodeModeNames, name);
  if (found != std::end(runner::kDecodeModeNames)) {
    return static_cast<runner::DecodeMode>(found - std::begin(runner::kDecodeModeNames));
  }
  const std::string modes = fmt::format("{}", fmt::join(runner::kDecodeModeNames, ", "));
  return fail(
      ErrorCode::kUsage,
      name == "shift-pointer"
          ? fmt::format("--mode shift-pointer: there is no shift-pointer mode; modes are {}", modes)
          : fmt::format("--mode {}: expected one of {}", quoted(name), modes));
}

}  // namespace ferry::cli
