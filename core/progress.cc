#include "core/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace ferry {
namespace {

std::string amount(double number, ProgressUnit unit) {
  const auto whole = static_cast<uint64_t>(std::llround(std::clamp(number, 0.0, 1e18)));
  return unit == ProgressUnit::kBytes ? human_bytes(whole) : fmt::format("{}", whole);
}

// Returns a text such as "42 s", "3:05 min" or "1:02 h".
std::string duration(double seconds) {
  const auto whole = static_cast<uint64_t>(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

std::string bar(double share) {
  constexpr size_t kWidth = 20;
  const auto filled = static_cast<size_t>(share * kWidth);
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(kWidth - filled, ' '));
}

}  // namespace

std::string progress_text(std::string_view label, const Progress& p, size_t columns) {
  const auto total = static_cast<double>(p.total);
  const double done = std::min(static_cast<double>(p.done), total);
  const double share = p.total == 0 ? 1.0 : done / total;
  const std::string percent = fmt::format("{:3} %", static_cast<int>(100 * share));
  std::string amounts = fmt::format("  {} of {}", amount(done, p.unit), amount(total, p.unit));
  if (done > 0 && p.seconds > 0) {
    const double rate = done / p.seconds;
    amounts +=
        fmt::format("  {}/s  {} left", amount(rate, p.unit), duration((total - done) / rate));
  }
  const std::string with_bar = fmt::format("{} {} {}{}", label, bar(share), percent, amounts);
  if (with_bar.size() <= columns) return with_bar;
  return fmt::format("{} {}{}", label, percent, amounts).substr(0, columns);
}

}  // namespace ferry
