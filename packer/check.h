// Checking a bundle: everything that is wrong with it, with the names of files.
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
  uint64_t files = 0;  // that the manifest lists, plus the manifest
  uint64_t bytes = 0;  // of those files, as far as they are there
  std::vector<CheckProblem> problems = {};
  bool ok() const { return problems.empty(); }
};

// Hashes every byte and validates all structure. Whatever is wrong inside the directory is a
// problem in the report; an error only if `directory` is not a directory that can be listed (kIo,
// kBadInput), or has nothing of a bundle in it (kBadInput). `progress` tells the
// bytes that are hashed.
Result<CheckReport> check_bundle(const std::string& directory, ThreadPool& pool,
                                 const ShowProgress& progress = {});

}  // namespace ferry::packer
