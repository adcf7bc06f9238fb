#include "tests/faults/fault.h"

#include <algorithm>
#include <filesystem>

namespace ferry {

namespace fs = std::filesystem;

long tries(long few) {
  const char* number = std::getenv("FERRY_CRASH_POINTS");
  return number != nullptr ? std::atol(number) : few;
}

std::vector<long> points(long count, long few) {
  std::vector<long> out;
  const long number = std::min(count, tries(few));
  for (long i = 0; i < number; ++i) {
    out.push_back(number == 1 ? count : 1 + i * (count - 1) / (number - 1));
  }
  return out;
}

std::set<std::string> entries_of(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename());
  }
  return names;
}

std::string stage_of(const std::string& out) {
  const fs::path path(out);
  const std::string prefix = "." + path.filename().string() + ".ferry-stage-";
  for (const std::string& name : entries_of(path.parent_path())) {
    if (name.starts_with(prefix)) return path.parent_path() / name;
  }
  return {};
}

long count_calls(const std::string& call, const std::vector<std::string>& args) {
  const Fault counting(call + " none 0");
  const Outcome outcome = run_ferry_once(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return counting.count();
}

bool run_and_die(const std::vector<std::string>& args, const std::string& fault) {
  const Fault dying(fault);
  return run_ferry_once(args).code == -1;
}

bool run_and_kill(const std::vector<std::string>& args, long at) {
  return run_and_die(args, "change kill " + std::to_string(at));
}

}  // namespace ferry
