// A function that handles hostile data, called in a child process that can do no harm.
//
// The child is a fork, not another program: nothing has to be found or installed, and library users
// and tests get the same protection. It may read one open file at any offset, compute, allocate and
// write its answer to a pipe; a seccomp filter denies every other system call (no file can be
// opened, nothing executed, no socket made), and limits bound its memory and processor time. If it
// crashes or hangs, the caller gets an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::hdf5 {

struct ConfinedLimits {
  uint64_t memory_bytes = 0;  // beyond what the process has when it forks; not in sanitizer builds
  uint64_t cpu_milliseconds = 0;
  uint64_t answer_bytes = 0;
};

// What `work` may end its process with (by _exit) when `fd` cannot be read.
inline constexpr int kExitCannotRead = 104;

// Calls `prepare`, then gives up all rights but pread on `fd`, then calls `work`, whose result is
// returned. `name` begins the messages. kBadInput if the child crashes or exceeds a limit, kIo if
// the system cannot start or confine one, or `fd` cannot be read. Thread-safe.
Result<std::string> call_confined(const std::string& name, int fd, const ConfinedLimits& limits,
                                  const std::function<void()>& prepare,
                                  const std::function<std::string()>& work);

}  // namespace ferry::hdf5
