// call_confined() calls a function that handles hostile data in a confined child process.
//
// The child may read one open file at any offset, allocate memory, and write its answer to a pipe.
// A seccomp filter denies every other system call: the child cannot open files, execute programs or
// make sockets. Limits bound its memory and processor time. If it crashes or hangs, the caller gets
// an error.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::hdf5 {

struct ConfinedLimits {
  uint64_t memory_bytes = 0;  // beyond what the child has at its start; not in sanitizer builds
  uint64_t cpu_milliseconds = 0;
  uint64_t answer_bytes = 0;
};

// The exit status with which `work` reports that the file cannot be read.
inline constexpr int kExitCannotRead = 104;

struct ConfinedWork {
  std::function<void()> prepare;      // runs before the confinement
  std::function<std::string()> work;  // returns the answer
};

// The main function of the child: prepares, gives up all rights but pread on `in`, works, writes
// the answer to `out`, and exits.
[[noreturn]] void run_confined(int in, int out, const ConfinedLimits& limits,
                               const ConfinedWork& work);

// Starts a child that calls run_confined() with `out`, and returns its process id. Returns -1 and
// sets errno on failure.
using StartChild = std::function<pid_t(int out)>;

// Returns the answer of the child that `start` makes. `name` begins the messages. kBadInput if the
// child crashes or exceeds a limit. kIo if the system cannot start or confine a child, or if the
// file cannot be read. Works in programs that ignore SIGCHLD. Thread-safe.
Result<std::string> call_confined(const std::string& name, const ConfinedLimits& limits,
                                  const StartChild& start);

// Returns a StartChild that forks. The process must have one thread, or a C library whose memory
// and streams work after a fork of a threaded process, as glibc's do.
StartChild fork_confined(int in, const ConfinedLimits& limits, const ConfinedWork& work);

}  // namespace ferry::hdf5
