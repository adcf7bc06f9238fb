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

// Sets the fault of the next runs (faulty_calls.cc). count() tells how often its call was made in
// the last run that ended normally.
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

// Returns how many trials a test makes: FERRY_CRASH_POINTS (crash.sh) if it is set, else `few`.
long tries(long few);
// Returns tries(few) numbers from 1 to `count`, the first and the last included, or all of them if
// there are fewer.
std::vector<long> points(long count, long few);
// Returns the names in a directory.
std::set<std::string> entries_of(const std::string& directory);
// Returns the stage beside bundle `out`; empty if there is none.
std::string stage_of(const std::string& out);
// Runs `args` without a fault and counts the calls of that name.
long count_calls(const std::string& call, const std::vector<std::string>& args);
// Runs `args` with that fault and returns whether it ended the process.
bool run_and_die(const std::vector<std::string>& args, const std::string& fault);
// Runs `args`, kills the process at the N-th call that changes a disk, and returns whether it was
// killed.
bool run_and_kill(const std::vector<std::string>& args, long at);

}  // namespace ferry
