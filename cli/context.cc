#include "cli/context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace ferry::cli {

ThreadPool& Context::pool() {
  if (!pool_) {
    pool_ = std::make_unique<ThreadPool>(threads > 0 ? static_cast<size_t>(threads)
                                                     : ThreadPool::hardware_threads());
  }
  return *pool_;
}

void Context::print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void Context::note(std::string_view line) {
  if (!quiet) fmt::print(stderr, "ferry: {}\n", line);
}

std::function<void(uint64_t, uint64_t)> Context::progress(std::string label) {
  if (quiet || isatty(STDERR_FILENO) == 0) return {};
  return [label = std::move(label), shown = -1](uint64_t done, uint64_t total) mutable {
    const int percent =
        total == 0 ? 100
                   : static_cast<int>(100 * (done / 100) / std::max<uint64_t>(total / 100, 1));
    if (percent == shown) return;
    shown = percent;
    constexpr int kWidth = 30;
    const int filled = percent * kWidth / 100;
    fmt::print(stderr, "\r{} [{:#<{}}{: <{}}] {:3}%{}", label, "", filled, "", kWidth - filled,
               percent, percent == 100 ? "\n" : "");
    std::fflush(stderr);
  };
}

bool Context::flush() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

int report(const Error& error) {
  std::string text = fmt::format("ferry: error: {}\n", error.message);
  for (const std::string& detail : error.details) text += fmt::format("  {}\n", detail);
  std::fwrite(text.data(), 1, text.size(), stderr);
  return static_cast<int>(error.code);
}

}  // namespace ferry::cli
