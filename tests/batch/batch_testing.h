// Checkpoints, plans and programs for tests of batches.
#pragma once

#include <string>
#include <vector>

#include "batch/plan.h"
#include "batch/run.h"
#include "batch/state.h"
#include "tests/formats/temp_dir.h"

namespace ferry::batch {

std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

// A copy of a small checkpoint in DIR/NAME. Each number gives other weights.
std::string make_checkpoint(const TempDir& dir, const std::string& name, int number);
// Makes a checkpoint that no conversion accepts.
std::string make_bad_checkpoint(const TempDir& dir, const std::string& name);

// Plans a task for each checkpoint, from DIR/NAME to DIR/out/NAME.
Plan make_plan(const TempDir& dir, const std::vector<std::string>& names);

// Makes an executable shell script. `"$FERRY"` in its text is the real program.
std::string make_program(const TempDir& dir, const std::string& name, const std::string& text);

// Runs all tasks of a plan, with short pauses.
struct Batch {
  const TempDir& dir;
  Plan plan;
  RunOptions options;
  State state;

  Batch(const TempDir& folder, const std::vector<std::string>& names);
  RunEnd run();
  RunEnd run(const std::vector<size_t>& indices);
  size_t attempts(const std::string& id) const;
};

// Returns the end of each task ("done", "up_to_date", "failed", ...), in the order of the plan.
std::vector<std::string> kinds(const RunEnd& end);

// Returns the digest of the bundle that `ferry convert` makes of a checkpoint by itself.
std::string digest_of_convert(const TempDir& dir, const std::string& checkpoint);

}  // namespace ferry::batch
