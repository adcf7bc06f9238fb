// Does the tasks of a plan: those that are not done, several at a time, each in processes of its
// own.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "batch/evaluate.h"
#include "batch/plan.h"
#include "batch/result.h"
#include "batch/state.h"
#include "core/result.h"

namespace ferry::batch {

struct RunOptions {
  std::string program;                          // path of the executable: ferry
  size_t workers = 1;                           // tasks at a time
  size_t threads = 1;                           // shared by the workers
  int64_t retries = 0;                          // of a task that failed for a reason that may pass
  std::chrono::milliseconds first_pause{1000};  // before the first retry; then twice as long, ...
  bool leases = true;
  bool wait = true;  // for tasks that others have leases on
  std::chrono::seconds lease{600};
  EvaluateOptions evaluate = {};
};

// What a run came to for one task.
struct TaskEnd {
  enum class Kind { kUpToDate, kAttempted, kFailedBefore, kElsewhere, kNotBegun };
  size_t index = 0;
  Kind kind = Kind::kNotBegun;
  AttemptResult result = {};  // not for kElsewhere and kNotBegun
};

struct RunEnd {
  std::vector<TaskEnd> tasks;  // in the order of the indices given
  bool interrupted = false;
  int exit = 0;  // of the program
};

// `indices` into plan.tasks, each once. `report` is called for every task that has ended, one call
// at a time, in the order of time. Ends early, with the rest kNotBegun, once a signal asks to stop
// (core/interrupt.h).
Result<RunEnd> run_tasks(const Plan& plan, std::span<const size_t> indices, const State& state,
                         const RunOptions& options,
                         const std::function<void(const TaskEnd&)>& report);

// That of a task, and the one that counts of several: the worst, and kTransientExit before all.
int exit_of(const TaskEnd& end);
int worse_exit(int a, int b);

}  // namespace ferry::batch
