// run_tasks() runs the tasks of a plan that are not done, several at a time, each in processes of
// its own.
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
  std::string program;  // path of the executable: ferry
  size_t workers = 1;   // number of tasks that run at a time
  size_t threads = 1;   // threads of all workers together
  int64_t retries = 0;  // retries of a task that failed for a reason that may pass
  std::chrono::milliseconds first_pause{1000};  // before the first retry; doubles with each retry
  bool leases = true;
  bool wait = true;  // wait for tasks on which other processes have leases
  std::chrono::seconds lease{600};
  EvaluateOptions evaluate = {};
};

// The end of one task in a run.
struct TaskEnd {
  enum class Kind { kUpToDate, kAttempted, kFailedBefore, kElsewhere, kNotBegun };
  size_t index = 0;
  Kind kind = Kind::kNotBegun;
  AttemptResult result = {};  // empty for kElsewhere and kNotBegun
};

struct RunEnd {
  std::vector<TaskEnd> tasks;  // in the order of `indices`
  bool interrupted = false;
  std::string full_disk = {};  // message of the task that found the disk full; empty: none did
  int exit = 0;                // worse_exit() of all tasks, or kFullDiskExit
};

// `indices` are distinct indices into plan.tasks. `report` is called when a task has ended, never
// by two threads at once. Ends early once a signal asks to stop (core/interrupt.h), or a task has
// found the disk full and has no retries left; the remaining tasks are kNotBegun then. Returns an
// error if the state folder cannot be written.
Result<RunEnd> run_tasks(const Plan& plan, std::span<const size_t> indices, const State& state,
                         const RunOptions& options,
                         const std::function<void(const TaskEnd&)>& report);

// Return the exit code of a task, and the worse of two exit codes. kTransientExit is the worst of
// all.
int exit_of(const TaskEnd& end);
int worse_exit(int a, int b);

}  // namespace ferry::batch
