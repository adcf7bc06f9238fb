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

// What a test tries: FERRY_CRASH_POINTS (crash.sh), or `few` without it.
long tries(long few);
// That many numbers from 1 to `count`, with the first and the last; at most all of them.
std::vector<long> points(long count, long few);
// Names in a directory.
std::set<std::string> entries_of(const std::string& directory);
// The stage that is beside bundle `out`; empty if there is none.
std::string stage_of(const std::string& out);
// Runs `args` without a fault and counts the calls of that name.
long count_calls(const std::string& call, const std::vector<std::string>& args);
// Runs `args` with that fault. Whether the process ended by it.
bool run_and_die(const std::vector<std::string>& args, const std::string& fault);
// Kills it at the N-th call that changes something.
bool run_and_kill(const std::vector<std::string>& args, long at);

}  // namespace ferry
