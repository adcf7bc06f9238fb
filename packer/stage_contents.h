// What an earlier run has left in the stage of a bundle. Private to packer/.
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

// OutputFolder: where planned files are written, a directory on a disk or memory.
// Private to packer/.

// A handle: what it names must outlive it.
class OutputFolder {
 public:
  OutputFolder(const std::string& directory, bool synced)
      : directory_(&directory), synced_(synced) {}
  explicit OutputFolder(MemoryFolder& memory) : memory_(&memory) {}

  Result<OutputFile> create(const std::string& name, uint64_t bytes) const {
    if (memory_ != nullptr) return memory_->create(name, bytes);
    return as_synced(FERRY_TRY(OutputFile::create(path_of(name), bytes)));
  }
  // One that is there, to be read and written.
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

// Empty where the source is not files (core/file_state.h): nothing says then that it is the same.
// Otherwise 64 hexadecimal digits, which differ wherever the weights of two plans could have other
// bytes or other places: they are over the version of the program, `plan_text`, which states every
// recipe and place, and the state and the headers of the files that are read. Names of directories
// and threads are not in it.
Result<std::string> stage_fingerprint(const FileSet& plan, std::string_view plan_text);

struct StageContents {
  std::vector<bool> files;                           // by index into FileSet::files: it is there
  std::vector<std::optional<WeightRecord>> weights;  // by index into FileSet::weights: whole
  uint64_t bytes = 0;                                // of these weights
};

// Reads every weight that `records` names back from the data files in `directory`, and returns
// those that have the digests that are stated. Everything else in the directory, but for data
// files of the planned size, is removed.
Result<StageContents> verified_contents(const FileSet& plan, const std::string& directory,
                                        std::span<const WeightRecord> records, ThreadPool& pool);

// Every planned file is made in `folder`, with its size; for all of them space is reserved where
// the file system can do that. What `contents` has stays, and what is between its weights becomes
// zero.
Status prepare_files(const FileSet& plan, const OutputFolder& folder,
                     const StageContents& contents);

}  // namespace ferry::packer
