// A process of a task: started, watched and measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

struct ChildCommand {
  std::string program;             // path of the executable
  std::vector<std::string> words;  // after the name of the program
  std::string out_path;            // a new file for its stdout
  std::string log_path;            // its stderr goes behind what is there
};

struct ChildEnd {
  int exit = 0;
  int signal = 0;        // that ended it, or 0
  bool stopped = false;  // by us
  double seconds = 0, processor_seconds = 0;
  uint64_t max_rss_bytes = 0;
};

// Returns when it has ended. `must_stop` is asked several times a second; from when it says true on
// the process has 4 seconds to end. Its process group is its own, so that a terminal's Ctrl-C comes
// once, through us; it is told to end when we are killed. kIo where it cannot be started.
Result<ChildEnd> run_child(const ChildCommand& command, const std::function<bool()>& must_stop);

}  // namespace ferry::batch
