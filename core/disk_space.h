// Room on a file system, before it is needed.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace ferry {

// kIo where the file system of `directory` has less than `bytes` bytes for this user; the message
// states both, and where. `path` is what they are needed for. File systems that do not know their
// size pass.
Status require_space(const std::string& directory, uint64_t bytes, const std::string& path);

}  // namespace ferry
