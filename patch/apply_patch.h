// apply_patch() makes the new folder of the old one and a patch of make_patch().
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::patch {

struct ApplyOptions {
  std::string output = {};  // path of the new folder
  bool overwrite = false;   // replaces what is at `output`
  bool in_place = false;    // replaces the old folder in one step; `output` is not used
  // Examines the new folder in the directory that it gets before it has its name. An error leaves
  // everything as it was. May be empty.
  std::function<Status(const std::string& directory)> check = {};
  ShowProgress progress = {};
};

struct AppliedPatch {
  uint64_t files = 0, bytes = 0;  // of the new folder
  uint64_t linked = 0;            // files that are the old ones themselves, not copies
  bool was_there = false;         // the old folder was the new one already; nothing was written
};

// Compares the digest of the patch, then of every old file that it reads; writes the new files
// beside the output, compares their digests, and gives the folder its name in one step. A stop at
// any moment leaves what was there, or the whole new folder. kBadInput for a damaged patch, and for
// an old folder that is not the one that the patch was made for, with the name of the file that
// differs. kExists, kIo as StagingDirectory. Memory: 25 MB for each thread, and the table.
Result<AppliedPatch> apply_patch(const std::string& old_folder, const std::string& patch,
                                 const ApplyOptions& options, ThreadPool& pool);

}  // namespace ferry::patch
