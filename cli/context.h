// Context: what every verb shares: global options, the thread pool, and the only ways to print.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/progress_text.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::cli {

class Context {
 public:
  bool json = false;     // one JSON document on stdout, nothing else there
  bool quiet = false;    // no summaries, notes or progress
  bool verbose = false;  // what is done, and how long it took
  int64_t threads = 0;   // 0: as many as the process may use
  std::string verb;      // of the command line, once it has been parsed: "convert", "batch run"

  // Started on first use.
  ThreadPool& pool();

  // Result text, to stdout. Callers print once all work has succeeded, so that a failure leaves
  // stdout empty.
  void print(std::string_view text);
  // With --json: the document of the verb, the envelope that docs/command_line.md describes around
  // `result`, which is the text of an object by JsonWriter, or empty. `exit` is what the verb's
  // action returns.
  void print_result(std::string_view result, int exit, const Error* error = nullptr);
  // A line for people to stderr, unless quiet.
  void note(std::string_view line);
  // A note that is shown only with --verbose.
  void detail(std::string_view line);
  // Lines for people that are no result, as they are, to stderr, unless quiet.
  void aside(std::string_view lines);
  // Draws on stderr when that is a terminal and the work takes more than a second; with --verbose
  // says at the end how long it took; otherwise does nothing. Takes (done, total); the label says
  // what is done: "writing".
  std::function<void(uint64_t, uint64_t)> progress(std::string label,
                                                   ProgressUnit unit = ProgressUnit::kBytes);
  // Says what went wrong: on stderr, with details unless quiet, and with --json in a document on
  // stdout, which must be the first unless the verb gives one per line. `result` is what the verb
  // has to say all the same. Returns the exit code.
  int refuse(const Error& given, std::string_view result = {});
  // False once a write to stdout has failed.
  bool flush();

 private:
  std::unique_ptr<ThreadPool> pool_;
};

// The exit code: 0 yes or done, 1 the answer is no.
using Action = std::function<Result<int>(Context&)>;

}  // namespace ferry::cli
