// FileState: which files something was read from, and in which state they were.
#pragma once

#include <string>

namespace ferry {

// A further base of tensor sources that are files.
class FileState {
 public:
  virtual ~FileState() = default;
  // A text that another file, or a file in another state, would change: inodes, sizes and times as
  // they were when the files were opened.
  virtual std::string state() const = 0;
};

}  // namespace ferry
