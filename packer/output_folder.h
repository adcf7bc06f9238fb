// OutputFolder: where planned files are written, a directory on a disk or memory. Private to
// packer/.
#pragma once

#include <cstdint>
#include <string>

#include "core/file.h"
#include "core/memory_folder.h"
#include "core/result.h"

namespace ferry::packer {

// A handle: what it names must outlive it.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& directory) : directory_(&directory) {}
  explicit OutputFolder(MemoryFolder& memory) : memory_(&memory) {}

  Result<OutputFile> create(const std::string& name, uint64_t bytes) const {
    return memory_ != nullptr ? memory_->create(name, bytes)
                              : OutputFile::create(path_of(name), bytes);
  }
  // One that is there, to be read and written.
  Result<OutputFile> open(const std::string& name) const {
    return memory_ != nullptr ? memory_->open_to_write(name)
                              : OutputFile::open_existing(path_of(name));
  }

 private:
  std::string path_of(const std::string& name) const { return *directory_ + "/" + name; }

  const std::string* directory_ = nullptr;
  MemoryFolder* memory_ = nullptr;
};

}  // namespace ferry::packer
