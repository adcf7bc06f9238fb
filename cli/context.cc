#include "cli/context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/envelope.h"
#include "cli/error_report.h"
#include "cli/progress_bar.h"

namespace ferry::cli {

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

int Context::refuse(const Error& error, std::string_view result) {
  if (json) print_result(result, exit_code(error), &error);
  flush();
  print_error(error, /*with_details=*/!quiet);
  return exit_code(error);
}

}  // namespace ferry::cli
