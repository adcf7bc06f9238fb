#include "tests/batch/batch_testing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "batch/evaluate.h"
#include "batch/shell.h"

namespace ferry::batch {

namespace fs = std::filesystem;

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string make_checkpoint(const TempDir& dir, const std::string& name, int number) {
  const std::string path = dir / name;
  const std::string source = std::string(FERRY_TESTDATA) + "/llama3_tied";
  fs::create_directories(path);
  fs::copy_file(source + "/config.json", path + "/config.json");
  std::string weights = read_bytes(source + "/model.safetensors");
  weights[weights.size() - 4] = static_cast<char>(number);  // low bits of the last value
  write_bytes(path + "/model.safetensors", weights);
  return path;
}

std::string make_bad_checkpoint(const TempDir& dir, const std::string& name) {
  const std::string path = make_checkpoint(dir, name, 0);
  fs::resize_file(path + "/model.safetensors", 1000);
  return path;
}

Plan make_plan(const TempDir& dir, const std::vector<std::string>& names) {
  Plan plan{.path = dir / "plan.jsonl", .sha256 = {}, .tasks = {}};
  for (const std::string& name : names) {
    plan.tasks.push_back({.index = plan.tasks.size(),
                          .id = name,
                          .input = dir / name,
                          .output = dir / ("out/" + name)});
  }
  return plan;
}

std::string make_program(const TempDir& dir, const std::string& name, const std::string& text) {
  const std::string path = dir / name;
  write_bytes(path, fmt::format("#!/bin/bash\nFERRY={}\nDIR={}\n{}\n", shell_word(FERRY_BINARY),
                                shell_word(dir / ""), text));
  ::chmod(path.c_str(), 0755);
  return path;
}

Batch::Batch(const TempDir& folder, const std::vector<std::string>& names)
    : dir(folder), plan(make_plan(folder, names)), state(folder / "state") {
  options.program = FERRY_BINARY;
  options.first_pause = std::chrono::milliseconds(10);
  options.lease = std::chrono::seconds(60);
}

RunEnd Batch::run(const std::vector<size_t>& indices) {
  Result<RunEnd> end = run_tasks(plan, indices, state, options, {});
  EXPECT_TRUE(end) << end.error().message;
  return end ? *std::move(end) : RunEnd();
}

RunEnd Batch::run() {
  std::vector<size_t> all(plan.tasks.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return run(all);
}

size_t Batch::attempts(const std::string& id) const {
  return state.attempts(id).value_or(std::vector<uint64_t>()).size();
}

std::vector<std::string> kinds(const RunEnd& end) {
  std::vector<std::string> names;
  for (const TaskEnd& task : end.tasks) {
    switch (task.kind) {
      case TaskEnd::Kind::kUpToDate:
        names.emplace_back("up_to_date");
        break;
      case TaskEnd::Kind::kFailedBefore:
        names.emplace_back("failed_before");
        break;
      case TaskEnd::Kind::kElsewhere:
        names.emplace_back("elsewhere");
        break;
      case TaskEnd::Kind::kNotBegun:
        names.emplace_back("not_begun");
        break;
      case TaskEnd::Kind::kAttempted:
        names.emplace_back(name_of(task.result.outcome));
        break;
    }
  }
  return names;
}

std::string digest_of_convert(const TempDir& dir, const std::string& checkpoint) {
  const std::string out = dir / "alone";
  fs::remove_all(out);
  const std::string line = shell_line({FERRY_BINARY, "convert", checkpoint, "-o", out, "--quiet"});
  EXPECT_EQ(std::system(line.c_str()), 0) << line;
  return bundle_digest(out).value_or("");
}

}  // namespace ferry::batch
