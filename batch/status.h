// status_of() tells the state of every task of a plan.
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
  // The result of the last attempt that has ended; for kDone and kChanged that of the last success.
  std::optional<AttemptResult> result = {};
  std::string problem = {};  // error message if the record of the task is damaged
};

struct PlanStatus {
  std::vector<TaskStatus> tasks;  // in the order of Plan::tasks
  std::array<size_t, kTaskStates.size()> counts = {};
  bool complete() const { return counts[0] == tasks.size(); }
};

// Makes the fingerprints of inputs, like run_tasks(), so that changed inputs are found. An attempt
// counts as running if its process lives; on another host, if the attempt was touched less than
// `lease` ago.
Result<PlanStatus> status_of(const Plan& plan, const State& state, std::chrono::seconds lease);

// Returns indices such as "3,17-19" for a job array whose runs have `tasks_per_index` tasks each.
// The indices are those of runs with a task in the state `wanted`; nullopt means every state but
// kDone and kRunning.
std::string array_spec(const PlanStatus& status, std::optional<TaskState> wanted,
                       size_t tasks_per_index);

}  // namespace ferry::batch
