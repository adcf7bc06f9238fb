// What the end of a process means for its task.
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

// What `ferry NAME --json` left: its document in `out_path`, its words in `log_path`.
struct StepFiles {
  std::string name, out_path, log_path;
};

// `out_of_memory`: the system has killed for want of memory while the process ran.
Judgement judge(const StepFiles& step, const ChildEnd& end, bool out_of_memory);

// An error of ours.
Judgement judge(const Error& error);

// A request to stop, or a lease that was lost.
Judgement interrupted(Class reason, std::string message);

// Of the document of `ferry verify --json`; none where it has none.
std::optional<Parity> parity_in(const std::string& path);

// An exit code of an attempt decides about the next one.

// EX_TEMPFAIL of sysexits.h: interrupted, or failed for a reason that may pass.
inline constexpr int kTransientExit = 75;

}  // namespace ferry::batch
