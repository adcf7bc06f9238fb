// MemoryFolder: named files that are in memory only, for what takes files but need not stay.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace ferry {

// A file takes memory as it is written. All of them are gone with this object and the files that
// were opened, or with the process, whatever ends it. Move-only.
class MemoryFolder {
 public:
  // A new file of `bytes` bytes, which are zero, to be read and written. kExists where there is one
  // of this name; kIo where the system gives no memory.
  Result<OutputFile> create(const std::string& name, uint64_t bytes);

  // The file of this name; kIo where there is none.
  Result<OutputFile> open_to_write(const std::string& name) const;
  // The same, to be read only. The folder must outlive it.
  Result<InputFile> open(const std::string& name) const;

  std::vector<std::string> names() const;

 private:
  Result<int> descriptor_of(const std::string& name) const;
  std::map<std::string, OutputFile> files_;
};

}  // namespace ferry
