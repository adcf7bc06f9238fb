// Plan: the tasks of a batch, one for each line of a JSON Lines file. docs/batch.md is the
// specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

inline constexpr uint64_t kMaxPlanBytes = uint64_t{256} << 20;

// How a bundle is proven once it is there.
struct Verify {
  bool embedded = false;    // with the reference inside of the bundle
  bool checkpoint = false;  // with the checkpoint that it was made of
  bool check = false;       // `ferry check`
  std::string reference = {};
  std::vector<std::string> args = {};

  // Whether `ferry verify` runs.
  bool verifies() const { return embedded || checkpoint || !reference.empty() || !args.empty(); }
};

struct Expectation {
  std::string sha256 = {};  // of manifest.json
  std::optional<uint64_t> max_bytes = {};
};

struct Task {
  size_t index = 0;  // in the plan, from 0
  std::string id, input, output;
  std::vector<std::string> args = {};  // of `ferry convert`
  Verify verify = {};
  Expectation expect = {};
};

struct Plan {
  std::string path;
  std::string sha256;  // of the file
  std::vector<Task> tasks;
};

// Strict: kBadInput with the number of the line for members that are not known, for ids and outputs
// that come twice, for outputs inside of others, and for words in `args` that batch gives itself.
Result<Plan> read_plan(const std::string& path);
// `name` begins the messages.
Result<Plan> parse_plan(const std::string& text, const std::string& name);

// Whether `text` may be the id of a task: a plain file name of letters, digits and "._-".
bool is_task_id(const std::string& text);

}  // namespace ferry::batch
