#include "cli/context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/error_report.h"
#include "core/version.h"

namespace ferry::cli {

ThreadPool& Context::pool() {
  if (!pool_) {
    pool_ = std::make_unique<ThreadPool>(threads > 0 ? static_cast<size_t>(threads)
                                                     : ThreadPool::hardware_threads());
  }
  return *pool_;
}

void Context::print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void Context::print_result(std::string_view result, int exit) {
  while (result.ends_with('\n')) result.remove_suffix(1);
  print(fmt::format(
      R"({{"schema":1,"ferry":"{}","verb":"{}","ok":{},"exit":{},"error":null,"result":{}}})"
      "\n",
      version(), verb, exit == 0, exit, result));
}

void Context::note(std::string_view line) {
  if (!quiet) fmt::print(stderr, "ferry: {}\n", line);
}

void Context::aside(std::string_view lines) {
  if (!quiet) std::fwrite(lines.data(), 1, lines.size(), stderr);
}

namespace {

// One line that is drawn over itself, and ended even if the work stops early.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() {
    if (shown_ >= 0) fmt::print(stderr, "\n");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t total) {
    const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
    const int percent = static_cast<int>(100.0 * share);
    if (percent == shown_) return;
    shown_ = percent;
    constexpr int kWidth = 30;
    const int filled = percent * kWidth / 100;
    fmt::print(stderr, "\r{} [{:#<{}}{: <{}}] {:3}%", label_, "", filled, "", kWidth - filled,
               percent);
    std::fflush(stderr);
  }

 private:
  std::string label_;
  int shown_ = -1;
};

}  // namespace

std::function<void(uint64_t, uint64_t)> Context::progress(std::string label) {
  if (quiet || isatty(STDERR_FILENO) == 0) return {};
  return [bar = std::make_shared<ProgressBar>(std::move(label))](uint64_t done, uint64_t total) {
    bar->show(done, total);
  };
}

bool Context::flush() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

int Context::refuse(const Error& error) {
  if (json) print(error_document(error));
  flush();
  print_error(error, /*with_details=*/!quiet);
  return exit_code(error);
}

}  // namespace ferry::cli
