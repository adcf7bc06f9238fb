// StagingDirectory: a temporary sibling of the target that becomes the target in one step, or
// vanishes. Private to packer/.
#pragma once

#include <string>

#include "core/result.h"

namespace ferry::packer {

// Holds `.NAME.ferry-tmp-PID` beside NAME, locked, from create() until publish() or destruction.
// Move-only, not thread-safe.
class StagingDirectory {
 public:
  StagingDirectory() = default;
  ~StagingDirectory();
  StagingDirectory(StagingDirectory&& other) noexcept;
  StagingDirectory& operator=(StagingDirectory&& other) noexcept;

  // Removes what killed runs left of the same target first. kUsage if another run is writing the
  // target, if it exists and `overwrite` is not set, or if it is neither empty nor a bundle; kIo if
  // there is no directory to put it into.
  static Result<StagingDirectory> create(const std::string& target, bool overwrite);

  const std::string& path() const { return path_; }

  // Syncs the directory, gives it its name, syncs the parent. The files in it have been synced. An
  // old target is exchanged with it in one step and removed afterwards.
  Status publish();

 private:
  Status exchange();

  std::string target_, parent_, path_;  // path_ is empty when there is nothing to remove
  bool overwrite_ = false;
  int lock_ = -1;
};

}  // namespace ferry::packer
