// run_child() runs a process, can stop it, and measures what it used.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

struct ChildCommand {
  std::string program;             // path of the executable
  std::vector<std::string> words;  // arguments, without the name of the program
  std::string out_path;            // file that is created or emptied for the stdout
  std::string log_path;            // existing file to which the stderr is appended
};

struct ChildEnd {
  int exit = 0;
  int signal = 0;        // number of the signal that ended the process, or 0
  bool stopped = false;  // `must_stop` returned true
  double seconds = 0, processor_seconds = 0;
  uint64_t max_rss_bytes = 0;
};

// Returns when the process has ended. Calls `must_stop` several times a second. Once it returns
// true, the process gets SIGTERM, and SIGKILL 4 seconds later. The process has a process group of
// its own, so that a terminal's Ctrl-C reaches it only through `must_stop`. The process gets
// SIGTERM if this program dies. Returns kIo if a file cannot be opened or no process can be made;
// ChildEnd::exit is 127 if `program` cannot be executed.
Result<ChildEnd> run_child(const ChildCommand& command, const std::function<bool()>& must_stop);

}  // namespace ferry::batch
