#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <new>

#include "cli/command_line.h"
#include "cli/error_report.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "core/file.h"
#include "core/interrupt.h"

namespace ferry::cli {
namespace {

// What fails after a request to stop, such as a helper process that the same signal has ended,
// fails because of it. What says so itself may say more.
Error cause_of(const Error& error) {
  if (error.code == ErrorCode::kInterrupted) return error;
  const Status stopped = check_interrupt();
  return stopped ? error : stopped.error();
}

int run_main(Context& context, int argc, char** argv) {
  raise_most_open_files();
  CommandLine line(context);
  add_inspect(line);
  add_audit(line);
  add_convert(line);
  add_run(line);
  add_embed(line);
  add_tokenize(line);
  add_preprocess(line);
  add_execute(line);
  add_verify(line);
  add_check(line);
  add_batch(line);
  add_sign(line);
  add_help(line);
  add_completion(line);
  const Result<Action> action = line.parse(argc, argv);
  if (!action) return context.refuse(action.error());
  if (context.json) announce_json(context.verb);
  const auto start = std::chrono::steady_clock::now();
  const Result<int> outcome = (*action)(context);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  context.detail(fmt::format("{}: {:.2f} s", context.verb, elapsed.count()));
  if (!outcome) return context.refuse(cause_of(outcome.error()));
  if (context.flush()) return *outcome;
  const Error error{ErrorCode::kIo, "standard output: cannot write"};
  print_error(error, true);
  return exit_code(error);
}

}  // namespace
}  // namespace ferry::cli

int main(int argc, char** argv) {
  ferry::cli::Context context;
  ferry::cli::install_signal_handlers();
  try {
    return ferry::cli::run_main(context, argc, argv);
  } catch (const std::bad_alloc&) {
    return context.refuse({ferry::ErrorCode::kIo, "not enough memory"});
  } catch (const std::exception& error) {
    return context.refuse({ferry::ErrorCode::kInternal, error.what()});
  }
}
