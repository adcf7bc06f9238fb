// Reads what an earlier run has left in the stage of a bundle. Private to packer/.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/memory_folder.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/file_set.h"
#include "packer/stage_journal.h"

namespace ferry::packer {

// OutputFolder is the directory on a disk or in memory where planned files are written. Private to
// packer/.

// Handle of a folder. What it refers to must outlive it.
class OutputFolder {
 public:
  OutputFolder(const std::string& directory, bool synced)
      : directory_(&directory), synced_(synced) {}
  explicit OutputFolder(MemoryFolder& memory) : memory_(&memory) {}

  Result<OutputFile> create(const std::string& name, uint64_t bytes) const {
    if (memory_ != nullptr) return memory_->create(name, bytes);
    return as_synced(FERRY_TRY(OutputFile::create(path_of(name), bytes)));
  }
  // Opens an existing file for reading and writing.
  Result<OutputFile> open(const std::string& name) const {
    if (memory_ != nullptr) return memory_->open_to_write(name);
    return as_synced(FERRY_TRY(OutputFile::open_existing(path_of(name))));
  }

 private:
  OutputFile as_synced(OutputFile file) const {
    if (!synced_) file.leave_unsynced();
    return file;
  }
  std::string path_of(const std::string& name) const { return *directory_ + "/" + name; }

  const std::string* directory_ = nullptr;
  bool synced_ = true;
  MemoryFolder* memory_ = nullptr;
};

// Returns 64 hexadecimal digits that differ whenever the weights of two plans could have other
// bytes or other positions. They cover the version of the program, `plan_text`, which states every
// recipe and position, and the state and headers of the files that are read. They do not cover
// names of directories and numbers of threads. Empty if the source is not made of files
// (core/file.h), because then nothing tells whether it has changed.
Result<std::string> stage_fingerprint(const FileSet& plan, std::string_view plan_text);

struct StageContents {
  std::vector<bool> files;  // by index into FileSet::files: the file exists
  // By index into FileSet::weights: the weight is complete.
  std::vector<std::optional<WeightRecord>> weights;
  uint64_t bytes = 0;  // bytes of these weights
};

// Reads every weight in `records` back from the data files in `directory`, and returns those that
// have the recorded digests. Removes everything else in the directory except data files of the
// planned size.
Result<StageContents> verified_contents(const FileSet& plan, const std::string& directory,
                                        std::span<const WeightRecord> records, ThreadPool& pool);

// Makes every planned file in `folder` with its size, and reserves space if the file system can do
// that. Weights in `contents` are kept, and the bytes between them become zero.
Status prepare_files(const FileSet& plan, const OutputFolder& folder,
                     const StageContents& contents);

}  // namespace ferry::packer
