// Finds checkpoints by the names of files, and writes the plan that converts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "batch/plan.h"
#include "core/result.h"

namespace ferry::batch {

// Paths in ascending order.
struct FoundCheckpoints {
  std::vector<std::string> checkpoints;
  std::vector<std::string> without_weights;  // folders with a config.json and nothing to convert
};

// All checkpoints in and below `directory`: folders with a file that formats::kKnownFiles names;
// else .gguf files, and other tensor files beside a config.json. Bundles and hidden folders are
// passed over; links to folders are not followed.
Result<FoundCheckpoints> find_checkpoints(const std::string& directory);

inline constexpr std::string_view kNoWeights = "a config.json without weights";

struct PlanOptions {
  std::vector<std::string> directories;
  std::string out_dir;  // of the bundles
  std::vector<std::string> args = {};
  Verify verify = {};
};

struct PlannedText {
  std::string text;  // a plan
  size_t tasks = 0;
  std::vector<std::string> without_weights = {};  // see FoundCheckpoints
};

// Ids are paths below their directories with '.' for '/'. kBadInput where there is no checkpoint;
// the same directories give the same text.
Result<PlannedText> make_plan(const PlanOptions& options);

}  // namespace ferry::batch
