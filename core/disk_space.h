// Checks for free space on a file system before it is needed.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace ferry {

// Returns kIo if the file system of `directory` has less than `bytes` bytes for this user. The
// message states both numbers and the directory. `path` is the file that needs the space. A file
// system that does not know its size passes.
Status require_space(const std::string& directory, uint64_t bytes, const std::string& path);

}  // namespace ferry
