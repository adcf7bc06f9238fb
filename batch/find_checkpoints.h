// Finds checkpoints by the names of files, and writes the plan that converts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "batch/plan.h"
#include "core/result.h"

namespace ferry::batch {

// Paths of all checkpoints in and below `directory`, in ascending order: folders with a file that
// formats::kKnownFiles names; else .gguf files, and other tensor files beside a config.json.
// Bundles and hidden folders are passed over; links to folders are not followed.
Result<std::vector<std::string>> find_checkpoints(const std::string& directory);

struct PlanOptions {
  std::vector<std::string> directories;
  std::string out_dir;  // of the bundles
  std::vector<std::string> args = {};
  Verify verify = {};
};

struct PlannedText {
  std::string text;  // a plan
  size_t tasks = 0;
};

// Ids are paths below their directories with '.' for '/'. kBadInput where there is no checkpoint;
// the same directories give the same text.
Result<PlannedText> make_plan(const PlanOptions& options);

}  // namespace ferry::batch
