#include "cli/time_value.h"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "core/text.h"

namespace ferry::cli {
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
