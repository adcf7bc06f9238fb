// A Plan is the list of tasks of a batch, read from a JSON Lines file with one task per line.
// docs/batch.md specifies the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

inline constexpr uint64_t kMaxPlanBytes = uint64_t{256} << 20;

// Says how a bundle is verified after the conversion.
struct Verify {
  bool embedded = false;       // compare with the reference inside the bundle
  bool checkpoint = false;     // compare with the checkpoint
  bool check = false;          // run `ferry check`
  std::string reference = {};  // path of a reference to compare with; empty: none
  std::vector<std::string> args = {};

  // Returns whether `ferry verify` is to run.
  bool verifies() const { return embedded || checkpoint || !reference.empty() || !args.empty(); }
};

struct Expectation {
  std::string sha256 = {};  // digest of manifest.json; empty: any
  std::optional<uint64_t> max_bytes = {};
};

struct Task {
  size_t index = 0;  // index into Plan::tasks
  std::string id, input, output;
  std::vector<std::string> args = {};  // further arguments of `ferry convert`
  Verify verify = {};
  Expectation expect = {};
};

struct Plan {
  std::string path;
  std::string sha256;  // digest of the plan's file
  std::vector<Task> tasks;
};

// Returns kBadInput, which names the line, for unknown members, repeated ids and outputs, outputs
// inside other outputs, and words in `args` that batch adds itself.
Result<Plan> read_plan(const std::string& path);
// Error messages begin with `name`.
Result<Plan> parse_plan(const std::string& text, const std::string& name);

// Returns whether `text` can be the id of a task: at most 200 letters, digits, '.', '_' and '-',
// the first of them neither '.' nor '-'.
bool is_task_id(const std::string& text);

}  // namespace ferry::batch
