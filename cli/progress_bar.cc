#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <utility>

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

}  // namespace

ProgressBar::ProgressBar(std::string label, ProgressUnit unit)
    : label_(std::move(label)), unit_(unit), start_(Clock::now()), next_(start_ + kQuiet) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs(kClearLine, stderr);
}

void ProgressBar::show(uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  const std::scoped_lock lock(mutex_);
  if (now < next_) return;
  next_ = now + kBetween;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string text = progress_text(label_, {done, total, seconds, unit_}, columns());
  fmt::print(stderr, "{}{}", kClearLine, text);
  std::fflush(stderr);
}

}  // namespace ferry::cli
