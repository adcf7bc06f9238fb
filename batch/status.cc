#include "batch/status.h"

#include <fmt/format.h>

#include <utility>

#include "batch/evaluate.h"
#include "batch/host.h"
#include "batch/state.h"

namespace ferry::batch {
namespace {

class Looker {
 public:
  Looker(const State& state, std::chrono::seconds lease) : state_(state), lease_(lease) {}

  Result<TaskStatus> look(const Task& task) const {
    TaskStatus status;
    const std::vector<uint64_t> numbers = FERRY_TRY(state_.attempts(task.id));
    status.attempts = numbers.size();
    const std::optional<AttemptResult> done = FERRY_TRY(state_.done(task.id));
    if (numbers.empty() && !done) return status;
    LastAttempt last;
    if (!numbers.empty()) last = FERRY_TRY(state_.attempt(task.id, numbers.back()));
    if (is_running(task, last)) {
      status.state = TaskState::kRunning;
      return status;
    }
    Evaluation found = evaluate(task, state_, {}, [] { return Status(); });
    if (found.verdict == Evaluation::Verdict::kUpToDate) {
      status.state = TaskState::kDone;
      status.result = std::move(found.recorded);
    } else if (last.result && last.result->outcome == Outcome::kFailed) {
      status.state = TaskState::kFailed;
      status.result = std::move(last.result);
    } else if (done || (last.result && last.result->outcome == Outcome::kDone)) {
      status.state = TaskState::kChanged;
      status.result = done ? done : last.result;
    } else {
      status.state = TaskState::kInterrupted;
      status.result = std::move(last.result);
    }
    return status;
  }

 private:
  bool is_running(const Task& task, const LastAttempt& last) const {
    if (last.result || !last.started) return false;
    const Life life = life_of({.host = last.started->host,
                               .boot = last.started->boot,
                               .id = last.started->process,
                               .start = last.started->process_start});
    if (life != Life::kUnknown) return life == Life::kAlive;
    const std::string started = state_.attempt_path(task.id, last.number, "started.json");
    const std::optional<double> age = seconds_since_touch(started, clock_file());
    return age && *age <= static_cast<double>(lease_.count());
  }

  // Returns a file that is touched to read the clock of the file server.
  const std::string& clock_file() const {
    if (clock_.empty()) {
      clock_ = state_.directory() + "/clock";
      // If the file cannot be written, no run can write its records on this file system either.
      [[maybe_unused]] const Status made =
          write_small_file(clock_, clock_ + "." + random_name(), "\n", Durable::kNo);
    }
    return clock_;
  }

  const State& state_;
  std::chrono::seconds lease_;
  mutable std::string clock_ = {};
};

}  // namespace

Result<PlanStatus> status_of(const Plan& plan, const State& state, std::chrono::seconds lease) {
  const Looker looker(state, lease);
  PlanStatus all;
  for (const Task& task : plan.tasks) {
    Result<TaskStatus> status = looker.look(task);
    // A damaged record must not hide the other tasks.
    if (!status)
      status = TaskStatus{.state = TaskState::kFailed, .problem = status.error().message};
    ++all.counts[static_cast<size_t>(status->state)];
    all.tasks.push_back(*std::move(status));
  }
  return all;
}

std::string array_spec(const PlanStatus& status, std::optional<TaskState> wanted,
                       size_t tasks_per_index) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < status.tasks.size(); ++i) {
    const TaskState state = status.tasks[i].state;
    const bool open = state != TaskState::kDone && state != TaskState::kRunning;
    const size_t index = i / tasks_per_index;
    if (wanted ? state != *wanted : !open) continue;
    if (indices.empty() || indices.back() != index) indices.push_back(index);
  }
  std::string spec;
  for (size_t i = 0; i < indices.size();) {
    size_t last = i;
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    spec += fmt::format("{}{}", spec.empty() ? "" : ",", indices[i]);
    if (last > i) spec += fmt::format("-{}", indices[last]);
    i = last + 1;
  }
  return spec;
}

}  // namespace ferry::batch
