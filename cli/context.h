// A Context holds what all verbs share: the global options, the thread pool and the functions that
// print.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::cli {

class Context {
 public:
  bool json = false;     // print one JSON document and nothing else to stdout
  bool quiet = false;    // print no summaries, notes or progress
  bool verbose = false;  // print also what is done and how long it took
  int64_t threads = 0;   // 0: as many as the process may use
  std::string verb;      // verb of the parsed line, such as "convert" or "batch run"

  // Returns the thread pool, which starts on first use.
  ThreadPool& pool();

  // Prints the text of a result to stdout. Callers print once all work has succeeded, so that a
  // failure leaves stdout empty.
  void print(std::string_view text);
  // With --json, prints the document of the verb: the envelope that docs/command_line.md describes,
  // around `result`, which is the text of an object by JsonWriter or empty. `exit` is the result of
  // the verb's action.
  void print_result(std::string_view result, int exit, const Error* error = nullptr);
  // Prints "ferry: LINE" to stderr, unless quiet.
  void note(std::string_view line);
  // Prints a note only with --verbose.
  void detail(std::string_view line);
  // Prints lines that are no result to stderr, without a prefix, unless quiet.
  void aside(std::string_view lines);
  // Returns a function that takes (done, total). It draws a progress line on stderr if that is a
  // terminal and the work takes more than a second, and with --verbose tells the duration at the
  // end. `label` names the work, such as "writing".
  std::function<void(uint64_t, uint64_t)> progress(std::string label,
                                                   ProgressUnit unit = ProgressUnit::kBytes);
  // Prints an error to stderr, with details unless quiet, and returns the exit code. With --json
  // also prints a document with the error and `result` to stdout. It must be the first document,
  // unless the verb prints one per line.
  int refuse(const Error& given, std::string_view result = {});
  // Returns false once a write to stdout has failed.
  bool flush();

 private:
  std::unique_ptr<ThreadPool> pool_;
};

// Returns the exit code: 0 for yes or done, 1 for the answer no.
using Action = std::function<Result<int>(Context&)>;

}  // namespace ferry::cli
