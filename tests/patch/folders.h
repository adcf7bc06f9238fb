// Folders of files with which patches are tested.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "patch/apply_patch.h"
#include "patch/make_patch.h"
#include "tests/cli/ferry_process.h"

namespace ferry {

using FolderContents = std::map<std::string, std::string>;

// Returns a safetensors file of u8 tensors.
std::string safetensors_of(const std::vector<std::pair<std::string, std::string>>& tensors);

// Returns bytes that do not repeat.
std::string noise(size_t size, unsigned seed);

// A patch of two folders in a directory of its own.
class PatchTrial {
 public:
  PatchTrial(const FolderContents& old, const FolderContents& made);

  std::string old_folder() const { return dir_ / "old"; }
  std::string new_folder() const { return dir_ / "new"; }
  std::string patch() const { return dir_ / "patch"; }
  std::string output() const { return dir_ / "out"; }

  Result<patch::PatchSummary> make(size_t threads = 2);
  // Applies the patch to the old folder; `output` is removed first.
  Result<patch::AppliedPatch> apply(const patch::ApplyOptions& more = {});
  FolderContents contents(const std::string& folder) const { return files_in(folder); }
  // Returns the names of everything beside the folders, also of what begins with a dot.
  std::vector<std::string> names() const;

 private:
  TempDir dir_;
};

}  // namespace ferry
