// FileState: which files something was read from, and in which state they were.
#pragma once

#include <string>

#include "core/file.h"
#include "core/result.h"

namespace ferry {

// "inode N, N bytes, modified N, changed N"; times in nanoseconds. kIo unless the file still is
// what it was when it was opened.
Result<std::string> state_of(const InputFile& file);

// A further base of tensor sources that are files.
class FileState {
 public:
  virtual ~FileState() = default;
  // A text that another file, or a file in another state, would change. kIo unless all files still
  // are what they were when they were opened.
  virtual Result<std::string> state() const = 0;
};

}  // namespace ferry
