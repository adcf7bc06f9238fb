#include "cli/context.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "cli/envelope.h"
#include "core/progress.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

struct ProgressStyle {
  bool line = false;   // draw a line over and over, from the first second on
  bool notes = false;  // print amount and duration at the end
};

// A line on stderr that shows the progress of some work. The line is cleared when the work ends or
// stops early. Several threads may report progress.
class ProgressBar {
 public:
  ProgressBar(std::string label, ProgressUnit unit, ProgressStyle style);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  std::string label_;
  ProgressUnit unit_;
  ProgressStyle style_;
  uint64_t done_ = 0;
  Clock::time_point start_, next_;
  bool drawn_ = false;
};

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

}  // namespace

ThreadPool& Context::pool() {
  if (!pool_) {
    pool_ = std::make_unique<ThreadPool>(threads > 0 ? static_cast<size_t>(threads)
                                                     : ThreadPool::hardware_threads());
  }
  return *pool_;
}

void Context::print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void Context::print_result(std::string_view result, int exit, const Error* error) {
  write_envelope(verb, exit, error, result, [this](std::string_view part) { print(part); });
}

void Context::note(std::string_view line) {
  if (!quiet) fmt::print(stderr, "ferry: {}\n", line);
}

void Context::detail(std::string_view line) {
  if (verbose) note(line);
}

void Context::aside(std::string_view lines) {
  if (!quiet) std::fwrite(lines.data(), 1, lines.size(), stderr);
}

std::function<void(uint64_t, uint64_t)> Context::progress(std::string label, ProgressUnit unit) {
  const ProgressStyle style = {.line = !quiet && isatty(STDERR_FILENO) != 0, .notes = verbose};
  if (!style.line && !style.notes) return {};
  return [bar = std::make_shared<ProgressBar>(std::move(label), unit, style)](
             uint64_t done, uint64_t total) { bar->show(done, total); };
}

bool Context::flush() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

int Context::refuse(const Error& given, std::string_view result) {
  const Error error = with_option(given);
  if (json) print_result(result, exit_code(error), &error);
  flush();
  print_error(error, /*with_details=*/!quiet);
  return exit_code(error);
}

}  // namespace ferry::cli
