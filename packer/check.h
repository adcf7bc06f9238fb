// check_bundle() finds everything that is wrong with a bundle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::packer {

struct CheckProblem {
  ErrorCode code = ErrorCode::kBadInput;
  std::string file;     // name in the bundle; empty for the directory itself
  std::string message;  // one line that begins with the path
};

struct CheckReport {
  std::string directory;
  uint64_t files = 0;  // number of files in the manifest, plus one for the manifest
  uint64_t bytes = 0;  // bytes of those files that exist
  std::vector<CheckProblem> problems = {};
  bool ok() const { return problems.empty(); }
};

// Hashes every byte and validates all structure. Damage inside the directory is reported as
// problems. kIo or kBadInput if `directory` is not a directory that can be listed; kBadInput if it
// contains no file of a bundle. `progress` counts the bytes that are hashed.
Result<CheckReport> check_bundle(const std::string& directory, ThreadPool& pool,
                                 const ShowProgress& progress = {});

}  // namespace ferry::packer
