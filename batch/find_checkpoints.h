// make_plan() finds checkpoints by the names of their files, and writes a plan that converts them.
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

// Finds the checkpoints in and below `directory`. A checkpoint is a folder with a file that
// formats::kKnownFiles names; in other folders, each .gguf file, and each other tensor file beside
// a config.json. Skips bundles and hidden folders, and does not follow links to folders.
Result<FoundCheckpoints> find_checkpoints(const std::string& directory);

inline constexpr std::string_view kNoWeights = "a config.json without weights";

struct PlanOptions {
  std::vector<std::string> directories;
  std::string out_dir;  // folder of the bundles
  std::vector<std::string> args = {};
  Verify verify = {};
};

struct PlannedText {
  std::string text;  // the JSON Lines of a plan
  size_t tasks = 0;
  std::vector<std::string> without_weights = {};  // FoundCheckpoints::without_weights
};

// The id of a task is the path below its directory, with '.' for '/'. Equal directories give equal
// texts. Returns kBadInput if there is no checkpoint.
Result<PlannedText> make_plan(const PlanOptions& options);

}  // namespace ferry::batch
