// A function that handles hostile data, called in a child process that can do no harm.
//
// The child may read one open file at any offset, compute, allocate and write its answer to a pipe;
// a seccomp filter denies every other system call (no file can be opened, nothing executed, no
// socket made), and limits bound its memory and processor time. If it crashes or hangs, the caller
// gets an error.
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
  uint64_t memory_bytes = 0;  // beyond what the child has when it begins; not in sanitizer builds
  uint64_t cpu_milliseconds = 0;
  uint64_t answer_bytes = 0;
};

// What `work` may end its process with (by _exit) when `fd` cannot be read.
inline constexpr int kExitCannotRead = 104;

struct ConfinedWork {
  std::function<void()> prepare;      // before the rights are given up
  std::function<std::string()> work;  // gives the answer
};

// The whole life of the child: prepares, gives up all rights but pread on `in`, works, and writes
// the answer to `out`.
[[noreturn]] void run_confined(int in, int out, const ConfinedLimits& limits,
                               const ConfinedWork& work);

// Starts a child that calls run_confined() with `out`. -1 and errno where it cannot.
using StartChild = std::function<pid_t(int out)>;

// The answer of the child that `start` makes. `name` begins the messages. kBadInput if the child
// crashes or exceeds a limit, kIo if the system cannot start or confine one, or the file cannot be
// read. Thread-safe. Children may be ignored by the program (SIGCHLD): what counts is the answer.
Result<std::string> call_confined(const std::string& name, const ConfinedLimits& limits,
                                  const StartChild& start);

// Starts the child as a fork. Only for a process that has one thread, or a C library whose memory
// and streams can be used after such a fork, as those of glibc can.
StartChild fork_confined(int in, const ConfinedLimits& limits, const ConfinedWork& work);

}  // namespace ferry::hdf5
