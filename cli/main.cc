#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "cli/envelope.h"
#include "cli/other_tools.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "formats/hdf5/reader_process.h"

namespace ferry::cli {
namespace {

// Replaces an error that follows a request to stop by that request, because a signal can also have
// ended a helper process. An error that is kInterrupted itself stays, since it may say more.
Error cause_of(const Error& error) {
  if (error.code == ErrorCode::kInterrupted) return error;
  const Status stopped = check_interrupt();
  return stopped ? error : stopped.error();
}

struct DeclaredVerb {
  std::string_view name;
  void (*add)(CommandLine& line);
  std::string_view task = "Other";  // verbs of a task stand together
  bool shows_others = false;
};
constexpr DeclaredVerb kVerbs[] = {
    {"convert", add_convert, "Convert"},
    {"batch", add_batch, "Convert"},
    {"imatrix", add_imatrix, "Convert"},
    {"run", add_run, "Run"},
    {"embed", add_embed, "Run"},
    {"classify", add_classify, "Run"},
    {"transcribe", add_transcribe, "Run"},
    {"execute", add_execute, "Run"},
    {"verify", add_verify, "Prove"},
    {"check", add_check, "Prove"},
    {"sign", add_sign, "Prove"},
    {"card", add_card, "Prove"},
    {"diff", add_diff, "Update"},
    {"apply", add_apply, "Update"},
    {"adapter", add_adapter, "Update"},
    {"inspect", add_inspect, "Inspect"},
    {"audit", add_audit, "Inspect"},
    {"tokenize", add_tokenize, "Inputs"},
    {"preprocess", add_preprocess, "Inputs"},
    {"help", add_help, "Help", /*shows_others=*/true},
    {"completion", add_completion, "Help", /*shows_others=*/true},
};

void declare(CommandLine& line, const DeclaredVerb& verb) {
  line.task(std::string(verb.task));
  verb.add(line);
}

// Declares only the verb with which the line begins, if any. Declaring all verbs takes a third of
// the time in which a small file is inspected.
void declare_verbs(CommandLine& line, std::string_view first_word) {
  const auto* only = std::ranges::find(kVerbs, first_word, &DeclaredVerb::name);
  if (only != std::end(kVerbs) && !only->shows_others) return declare(line, *only);
  for (const DeclaredVerb& verb : kVerbs) declare(line, verb);
}

// Returns the lines of other tools' users in our words, as further lines of an error.
std::vector<std::string> explain_line(const std::vector<std::string>& words) {
  Context context;
  CommandLine all(context);
  declare_verbs(all, "");
  return meant_lines(words, all.spec(), [](const std::vector<std::string>& line) {
    Context unused;
    CommandLine parser(unused);
    declare_verbs(parser, "");
    return parser.accepts(line);
  });
}

int run_main(Context& context, int argc, char** argv) {
  raise_most_open_files();
  CommandLine line(context);
  declare_verbs(line, argc > 1 ? argv[1] : "");
  line.explain_with(explain_line);
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
  ferry::hdf5::serve_if_asked(argc, argv);
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
