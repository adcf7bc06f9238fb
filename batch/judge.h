// judge() derives the outcome of a task from the end of one of its processes.
#pragma once

#include <optional>
#include <string>

#include "batch/child.h"
#include "batch/result.h"

namespace ferry::batch {

struct Judgement {
  Outcome outcome = Outcome::kDone;
  int exit = 0;
  Class reason = Class::kNone;
  bool transient = false;
  std::string message = {};
};

// `ferry NAME --json` has written its document to `out_path` and its messages to `log_path`.
struct StepFiles {
  std::string name, out_path, log_path;
};

// `out_of_memory`: the kernel killed some process for lack of memory while this one ran.
Judgement judge(const StepFiles& step, const ChildEnd& end, bool out_of_memory);

// Judges an error of the batch program itself.
Judgement judge(const Error& error);

// Judges a request to stop or a lost lease.
Judgement interrupted(Class reason, std::string message);

// Reads the document of `ferry verify --json`. Returns nullopt if it has no verdict.
std::optional<Parity> parity_in(const std::string& path);

// EX_TEMPFAIL of sysexits.h. The task was interrupted, or failed for a reason that may pass, so
// another run may succeed.
inline constexpr int kTransientExit = 75;
// EX_IOERR of sysexits.h. The disk is full, so that no task can go on. The run has ended, and goes
// on once there is room.
inline constexpr int kFullDiskExit = 74;

// Returns whether a message is about a disk or a quota that is full.
bool is_full_disk(const std::string& message);

}  // namespace ferry::batch
