#include <signal.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <string_view>

#include "cli/command_line.h"
#include "cli/verbs.h"
#include "core/file.h"

namespace ferry::cli {
namespace {

// A mapped bundle file that shrinks while it is read raises SIGBUS: an I/O error, not a crash. Only
// async-signal-safe calls here.
extern "C" void on_sigbus(int) {
  constexpr std::string_view kText =
      "ferry: error: a mapped file became shorter or unreadable while it was in use\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(static_cast<int>(ErrorCode::kIo));
}

void install_sigbus_handler() {
  struct sigaction action = {};
  action.sa_handler = on_sigbus;
  sigaction(SIGBUS, &action, nullptr);
}

int run_main(int argc, char** argv) {
  install_sigbus_handler();
  raise_most_open_files();
  signal(SIGCHLD,
         SIG_DFL);  // how a child ended cannot be told where it is ignored, as `trap ''` does
  Context context;
  CommandLine line(context);
  add_inspect(line);
  add_convert(line);
  add_run(line);
  add_tokenize(line);
  add_execute(line);
  add_verify(line);
  add_check(line);
  const Result<Action> action = line.parse(argc, argv);
  if (!action) return report(action.error());
  const Result<int> outcome = (*action)(context);
  if (!outcome) return report(outcome.error());
  if (!context.flush()) return report({ErrorCode::kIo, "standard output: cannot write"});
  return *outcome;
}

}  // namespace
}  // namespace ferry::cli

int main(int argc, char** argv) {
  try {
    return ferry::cli::run_main(argc, argv);
  } catch (const std::bad_alloc&) {
    return ferry::cli::report({ferry::ErrorCode::kIo, "not enough memory"});
  } catch (const std::exception& error) {
    return ferry::cli::report({ferry::ErrorCode::kInternal, error.what()});
  }
}
