// FileState identifies the files that something was read from, and the state that they were in.
#pragma once

#include <string>

#include "core/file.h"
#include "core/result.h"

namespace ferry {

// Returns "inode N, N bytes, modified N, changed N", with times in nanoseconds. kIo if the file has
// changed since it was opened.
Result<std::string> state_of(const InputFile& file);

// A second base class of tensor sources that read files.
class FileState {
 public:
  virtual ~FileState() = default;
  // Returns a text that differs for another file and for another state of a file. kIo if a file has
  // changed since it was opened.
  virtual Result<std::string> state() const = 0;
};

}  // namespace ferry
