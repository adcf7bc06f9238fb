#include "cli/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <string_view>

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

Result<runner::KvBits> kv_bits(const std::string& text) {
  if (text.empty()) return runner::KvBits();
  if (const auto bits = runner::parse_kv_bits(text)) return *bits;
  return fail(ErrorCode::kUsage,
              fmt::format("--kv-bits {}: expected {}", quoted(text), runner::kKvBitsForms));
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

namespace {

// Parses the `count` digits at text[at]; returns -1 if they are no digits.
int digits(std::string_view text, size_t at, size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

// Returns whether `text` matches `pattern`, in which 0 stands for any digit.
bool is_like(std::string_view text, std::string_view pattern) {
  if (text.size() != pattern.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (pattern[i] == '0' ? !digit : text[i] != pattern[i]) return false;
  }
  return true;
}

}  // namespace

Result<int64_t> parse_time(const char* option, const std::string& text) {
  namespace chrono = std::chrono;
  const bool has_time = is_like(text, "0000-00-00T00:00:00Z");
  const auto bad = [&] {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} is not a time such as 2026-03-01 or 2026-03-01T12:00:00Z",
                            option, quoted(text)));
  };
  if (!has_time && !is_like(text, "0000-00-00")) return bad();
  const chrono::year_month_day day{chrono::year(digits(text, 0, 4)),
                                   chrono::month(static_cast<unsigned>(digits(text, 5, 2))),
                                   chrono::day(static_cast<unsigned>(digits(text, 8, 2)))};
  const int hours = has_time ? digits(text, 11, 2) : 0;
  const int minutes = has_time ? digits(text, 14, 2) : 0;
  const int seconds = has_time ? digits(text, 17, 2) : 0;
  if (!day.ok() || hours > 23 || minutes > 59 || seconds > 59) return bad();
  const chrono::sys_seconds time = chrono::sys_days(day) + chrono::hours(hours) +
                                   chrono::minutes(minutes) + chrono::seconds(seconds);
  return int64_t{time.time_since_epoch().count()};
}

}  // namespace ferry::cli
