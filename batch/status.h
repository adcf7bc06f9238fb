// The state of every task of a plan, and what can be said of all of them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batch/plan.h"
#include "batch/result.h"
#include "batch/state.h"
#include "core/result.h"

namespace ferry::batch {

enum class TaskState { kDone, kChanged, kRunning, kFailed, kInterrupted, kWaiting };
inline constexpr std::array<std::string_view, 6> kTaskStates = {"done",   "changed",     "running",
                                                                "failed", "interrupted", "waiting"};

struct TaskStatus {
  TaskState state = TaskState::kWaiting;
  uint64_t attempts = 0;
  // Of the last attempt that has ended; for kDone and kChanged of the last success.
  std::optional<AttemptResult> result = {};
  std::string problem = {};  // why nothing can be said of it: its record is damaged
};

struct PlanStatus {
  std::vector<TaskStatus> tasks;  // as in the plan
  std::array<size_t, kTaskStates.size()> counts = {};
  bool complete() const { return counts[0] == tasks.size(); }
};

// Inputs are looked at as `run` does, so that what has changed is seen. An attempt counts as
// running if its process lives, or, on other hosts, as long as it was touched less than `lease`
// ago.
Result<PlanStatus> status_of(const Plan& plan, const State& state, std::chrono::seconds lease);

// "3,17-19": indices of the tasks in a state, or in any but kDone and kRunning ("unfinished"), for
// runs of `tasks_per_index`. Empty where there are none.
std::string array_spec(const PlanStatus& status, std::optional<TaskState> wanted,
                       size_t tasks_per_index);

}  // namespace ferry::batch
