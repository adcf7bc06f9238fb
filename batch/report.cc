#include "batch/report.h"

#include <algorithm>
#include <ctime>
#include <string_view>
#include <utility>

namespace ferry::batch {
namespace {

std::string replaced(std::string text, const std::string& what, std::string_view by) {
  if (what.empty()) return text;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// The same for tasks that failed for the same reason. A longer path is replaced before one that it
// may begin with.
std::string general_message(const Task& task, std::string message) {
  std::vector<std::pair<std::string, std::string_view>> names = {{task.input, "INPUT"},
                                                                 {task.output, "OUTPUT"}};
  if (task.output.size() > task.input.size()) std::swap(names[0], names[1]);
  for (const auto& [name, by] : names) message = replaced(std::move(message), name, by);
  return message;
}

// Of the start and the time that it took: "2026-01-31T12:00:00Z" + 90 s.
std::string end_of(const AttemptResult& result) {
  std::tm parts = {};
  if (::strptime(result.start.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return {};
  const std::time_t end = ::timegm(&parts) + static_cast<std::time_t>(result.seconds);
  ::gmtime_r(&end, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// UTC times in this form are in the order of their texts.
void add_times(Report& report, const AttemptResult& result) {
  const std::string end = end_of(result);
  if (end.empty()) return;
  if (report.start.empty() || result.start < report.start) report.start = result.start;
  if (end > report.end) report.end = end;
}

void add_attempt(Report& report, const AttemptResult& result) {
  report.seconds += result.seconds;
  report.processor_seconds += result.processor_seconds;
  report.max_rss_bytes = std::max(report.max_rss_bytes, result.max_rss_bytes);
  HostWork& host = report.hosts[result.host];
  ++host.attempts;
  host.seconds += result.seconds;
  add_times(report, result);
}

void add_failure(Report& report, const Task& task, const TaskStatus& status) {
  std::string reason = "internal", message = status.problem;
  int exit = static_cast<int>(ErrorCode::kBadInput);
  if (status.result) {
    reason = name_of(status.result->reason);
    message = general_message(task, status.result->message);
    exit = status.result->exit;
  }
  for (FailureGroup& group : report.failures) {
    if (group.reason != reason || group.message != message || group.exit != exit) continue;
    group.tasks.push_back(task.id);
    return;
  }
  report.failures.push_back(
      {.reason = reason, .message = message, .exit = exit, .tasks = {task.id}});
}

void add_task(Report& report, const Task& task, const TaskStatus& status) {
  report.attempts += status.attempts;
  if (status.state == TaskState::kFailed) add_failure(report, task, status);
  const bool done = status.state == TaskState::kDone;
  if (done) {
    report.input_bytes += status.result->input_bytes;
    report.output_bytes += status.result->output_bytes;
  }
  if (!task.verify.verifies()) {
    ++report.not_asked;
  } else if (done && status.result->parity && status.result->parity->parity) {
    ++report.proven;
  } else if (status.result && status.result->reason == Class::kParity) {
    ++report.not_proven;
  }
}

// All attempts of a task count in the sums; records of killed ones have no times.
void add_attempts(Report& report, const State& state, const Task& task) {
  const Result<std::vector<uint64_t>> numbers = state.attempts(task.id);
  if (!numbers) return;
  for (const uint64_t number : *numbers) {
    const Result<LastAttempt> attempt = state.attempt(task.id, number);
    if (attempt && attempt->result) add_attempt(report, *attempt->result);
  }
}

}  // namespace

Result<Report> make_report(const Plan& plan, const State& state, std::chrono::seconds lease) {
  Report report;
  report.plan = &plan;
  report.status = FERRY_TRY(status_of(plan, state, lease));
  for (const Task& task : plan.tasks) {
    add_task(report, task, report.status.tasks[task.index]);
    add_attempts(report, state, task);
  }
  std::ranges::stable_sort(report.failures, std::ranges::greater(),
                           [](const FailureGroup& group) { return group.tasks.size(); });
  return report;
}

}  // namespace ferry::batch
