#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "core/text.h"

namespace ferry::cli {
namespace {

constexpr std::chrono::milliseconds kQuiet{1000}, kBetween{100};
constexpr const char* kClearLine = "\r\x1b[K";

size_t columns() {
  constexpr size_t kDefault = 80;
  winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - size_t{1} : kDefault;
}

double seconds_between(std::chrono::steady_clock::time_point start,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

ProgressBar::ProgressBar(std::string label, ProgressUnit unit, ProgressStyle style)
    : label_(std::move(label)),
      unit_(unit),
      style_(style),
      start_(Clock::now()),
      next_(start_ + kQuiet) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs(kClearLine, stderr);
  if (!style_.notes || done_ == 0) return;
  fmt::print(stderr, "ferry: {}: {} in {:.2f} s\n", label_,
             unit_ == ProgressUnit::kBytes ? human_bytes(done_) : fmt::format("{}", done_),
             seconds_between(start_, Clock::now()));
}

void ProgressBar::show(uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  const std::scoped_lock lock(mutex_);
  done_ = std::max(done_, done);
  if (!style_.line || now < next_) return;
  next_ = now + kBetween;
  drawn_ = true;
  const Progress progress = {done, total, seconds_between(start_, now), unit_};
  const std::string text = progress_text(label_, progress, columns());
  fmt::print(stderr, "{}{}", kClearLine, text);
  std::fflush(stderr);
}

}  // namespace ferry::cli
