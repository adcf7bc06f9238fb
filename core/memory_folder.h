// MemoryFolder holds named files in memory, for code that takes files which need not stay on a
// disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/huge_memory.h"
#include "core/result.h"

namespace ferry {

// A file takes memory as it is written. The files are gone when this object and the files that were
// opened are destroyed, or when the process ends. Move-only.
class MemoryFolder {
 public:
  // Creates a file of `bytes` zero bytes for reading and writing. kExists if the name is taken; kIo
  // if the system gives no memory.
  Result<OutputFile> create(const std::string& name, uint64_t bytes);

  // Opens the file `name` for reading and writing; kIo if there is none.
  Result<OutputFile> open_to_write(const std::string& name) const;
  // Opens the file `name` for reading; kIo if there is none.
  Result<InputFile> open(const std::string& name) const;

  std::vector<std::string> names() const;

 private:
  Result<std::shared_ptr<HugeMemory>> find(const std::string& name) const;
  std::map<std::string, std::shared_ptr<HugeMemory>> files_;
};

}  // namespace ferry
