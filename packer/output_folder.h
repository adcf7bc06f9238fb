// OutputFolder: where planned files are written, a directory on a disk or memory. Private to
// packer/.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/file.h"
#include "core/memory_folder.h"
#include "core/result.h"

namespace ferry::packer {

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

}  // namespace ferry::packer
