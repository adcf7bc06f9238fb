// Faults for the next runs of ferry_faulty, and what they leave behind.
#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry {

using Files = std::map<std::string, std::string>;

// The fault of the next runs (faulty_calls.cc), and how often its call was made in the last of
// them that came to its end.
class Fault {
 public:
  explicit Fault(const std::string& text) {
    ::setenv("FERRY_FAULT", text.c_str(), 1);
    ::setenv("FERRY_FAULT_COUNT", (dir_ / "count").c_str(), 1);
  }
  ~Fault() {
    ::unsetenv("FERRY_FAULT");
    ::unsetenv("FERRY_FAULT_COUNT");
  }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
  long count() const { return std::atol(read_bytes(dir_ / "count").c_str()); }

 private:
  TempDir dir_;
};

// Whether the long form of the crash tests was asked for (crash.sh).
bool all_points();
// Numbers from 1 to `count`: all of them in the long form, else `few`, with the first and the last.
std::vector<long> points(long count, long few);
// Names in a directory.
std::set<std::string> entries_of(const std::string& directory);
// The stage that is beside bundle `out`; empty if there is none.
std::string stage_of(const std::string& out);
// Runs `args` without a fault and counts the calls of that name.
long count_calls(const std::string& call, const std::vector<std::string>& args);
// Runs `args` and kills it at the N-th call that changes something. Whether it came to that.
bool run_and_kill(const std::vector<std::string>& args, long at, const std::string& kind = "kill");

}  // namespace ferry
