#include "batch/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <ctime>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

std::string replaced(std::string text, const std::string& what, std::string_view by) {
  if (what.empty()) return text;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// Returns a message that is equal for tasks that failed for the same reason. The longer path is
// replaced first, because the shorter one may be the beginning of it.
std::string general_message(const Task& task, std::string message) {
  std::vector<std::pair<std::string, std::string_view>> names = {{task.input, "INPUT"},
                                                                 {task.output, "OUTPUT"}};
  if (task.output.size() > task.input.size()) std::swap(names[0], names[1]);
  for (const auto& [name, by] : names) message = replaced(std::move(message), name, by);
  return message;
}

// Adds the duration of an attempt to its start, such as 90 s to "2026-01-31T12:00:00Z".
std::string end_of(const AttemptResult& result) {
  std::tm parts = {};
  if (::strptime(result.start.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return {};
  const std::time_t end = ::timegm(&parts) + static_cast<std::time_t>(result.seconds);
  ::gmtime_r(&end, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// UTC times in this form compare as texts.
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

// Adds all attempts of a task to the sums. Attempts that were killed have no result, and so no
// times.
void add_attempts(Report& report, const State& state, const Task& task) {
  const Result<std::vector<uint64_t>> numbers = state.attempts(task.id);
  if (!numbers) return;
  for (const uint64_t number : *numbers) {
    const Result<LastAttempt> attempt = state.attempt(task.id, number);
    if (attempt && attempt->result) add_attempt(report, *attempt->result);
  }
}

void write_plan(JsonWriter& json, const Plan& plan) {
  json.key("plan").begin_object().member("path", plan.path).member("sha256", plan.sha256);
  json.member("tasks", plan.tasks.size()).end_object();
}

void write_counts(JsonWriter& json, const PlanStatus& status) {
  json.member("complete", status.complete());
  json.key("counts").begin_object();
  for (size_t i = 0; i < kTaskStates.size(); ++i) {
    json.member(kTaskStates[i], status.counts[i]);
  }
  json.end_object();
}

void write_time(JsonWriter& json, const char* name, const std::string& time) {
  json.key(name);
  if (time.empty()) {
    json.null();
  } else {
    json.value(time);
  }
}

void write_totals(JsonWriter& json, const Report& report) {
  json.key("totals").begin_object().member("attempts", report.attempts);
  json.member("input_bytes", report.input_bytes).member("output_bytes", report.output_bytes);
  json.member("seconds", report.seconds).member("processor_seconds", report.processor_seconds);
  json.member("max_rss_bytes", report.max_rss_bytes);
  write_time(json, "start", report.start);
  write_time(json, "end", report.end);
  json.key("parity").begin_object().member("proven", report.proven);
  json.member("failed", report.not_proven).member("not_asked", report.not_asked).end_object();
  json.end_object();
}

void write_failures(JsonWriter& json, const std::vector<FailureGroup>& failures) {
  json.key("failures").begin_array();
  for (const FailureGroup& group : failures) {
    json.begin_object().member("class", group.reason).member("exit", group.exit);
    json.member("message", group.message).key("tasks").begin_array();
    for (const std::string& id : group.tasks) json.value(id);
    json.end_array().end_object();
  }
  json.end_array();
}

void write_hosts(JsonWriter& json, const Report& report) {
  json.key("hosts").begin_array();
  for (const auto& [name, work] : report.hosts) {
    json.begin_object().member("name", name).member("attempts", work.attempts);
    json.member("seconds", work.seconds).end_object();
  }
  json.end_array();
}

// Writes the result of the last attempt; zeros if there was none.
void write_result(JsonWriter& json, const TaskStatus& status) {
  const AttemptResult result = status.result.value_or(AttemptResult());
  json.member("class", name_of(result.reason)).key("exit");
  if (status.result) {
    json.value(result.exit);
  } else {
    json.null();
  }
  json.member("transient", result.transient);
  json.member("message", status.problem.empty() ? result.message : status.problem);
  json.member("attempts", status.attempts);
  json.member("host", result.host).member("start", result.start);
  json.member("seconds", result.seconds).member("processor_seconds", result.processor_seconds);
  json.member("max_rss_bytes", result.max_rss_bytes);
  json.member("input_bytes", result.input_bytes).member("output_bytes", result.output_bytes);
  json.member("sha256", result.sha256);
  write_parity(json, result.parity);
  write_steps(json, result.steps);
}

void write_tasks(JsonWriter& json, const Plan& plan, const PlanStatus& status) {
  json.key("tasks").begin_array();
  for (const Task& task : plan.tasks) {
    const TaskStatus& its = status.tasks[task.index];
    json.begin_object().member("index", task.index).member("id", task.id);
    json.member("input", task.input).member("output", task.output);
    json.member("state", kTaskStates[static_cast<size_t>(its.state)]);
    write_result(json, its);
    json.end_object();
  }
  json.end_array();
}

constexpr size_t kShownIds = 8;

std::string_view state_name(const TaskStatus& status) {
  return kTaskStates[static_cast<size_t>(status.state)];
}

// Returns a text such as "17 done, 2 failed, 1 waiting".
std::string counts_text(const PlanStatus& status) {
  std::string text;
  for (size_t i = 0; i < kTaskStates.size(); ++i) {
    if (status.counts[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", status.counts[i], kTaskStates[i]);
  }
  return text;
}

std::string ids_text(const std::vector<std::string>& ids) {
  const size_t shown = std::min(ids.size(), kShownIds);
  std::string text =
      fmt::format("{}", fmt::join(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (shown < ids.size()) text += fmt::format(" and {} more", ids.size() - shown);
  return text;
}

std::string message_of(const TaskStatus& status) {
  if (!status.problem.empty()) return status.problem;
  return status.state == TaskState::kFailed && status.result ? status.result->message
                                                             : std::string();
}

std::string parity_text(const TaskStatus& status) {
  if (!status.result || !status.result->parity) return "-";
  return status.result->parity->parity ? "yes" : "no";
}

std::string sums_text(const Report& report) {
  return fmt::format(
      "{} -> {}, {} attempts, {:.1f} s ({:.1f} s of processors), at most {} in a "
      "process",
      human_bytes(report.input_bytes), human_bytes(report.output_bytes), report.attempts,
      report.seconds, report.processor_seconds, human_bytes(report.max_rss_bytes));
}

std::string proofs_text(const Report& report) {
  return fmt::format("parity: {} proven, {} failed, {} not asked for", report.proven,
                     report.not_proven, report.not_asked);
}

// Escapes a text for a cell of a Markdown table, so that names and messages from files cannot
// become markup.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : safe_message(text)) {
    if (std::string_view("\\`*_{}[]<>()#+-!|&~").find(c) != std::string_view::npos) safe += '\\';
    safe += c;
  }
  return safe;
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

std::string report_json(const Report& report) {
  JsonWriter json;
  json.begin_object();
  write_plan(json, *report.plan);
  write_counts(json, report.status);
  write_totals(json, report);
  write_failures(json, report.failures);
  write_hosts(json, report);
  write_tasks(json, *report.plan, report.status);
  json.end_object();
  return json.take();
}

std::string status_json(const Plan& plan, const PlanStatus& status) {
  JsonWriter json;
  json.begin_object();
  write_plan(json, plan);
  write_counts(json, status);
  write_tasks(json, plan, status);
  json.end_object();
  return json.take();
}

std::string safe_message(std::string_view message) {
  std::string text;
  while (!message.empty()) {
    const size_t end = std::min(message.find_first_of("'\"\\"), message.size());
    text += printable(message.substr(0, end));
    if (end < message.size()) text += message[end];
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  return text;
}

std::string status_text(const Plan& plan, const PlanStatus& status) {
  size_t width = 2;
  for (const Task& task : plan.tasks) width = std::max(width, task.id.size());
  std::string text = fmt::format("{:>6}  {:{}}  {:11}  {:>8}  {:>9}  {:>10}\n", "index", "id",
                                 width, "state", "attempts", "seconds", "bytes");
  for (const Task& task : plan.tasks) {
    const TaskStatus& its = status.tasks[task.index];
    const AttemptResult result = its.result.value_or(AttemptResult());
    fmt::format_to(std::back_inserter(text), "{:>6}  {:{}}  {:11}  {:>8}  {:>9.2f}  {:>10}",
                   task.index, task.id, width, state_name(its), its.attempts, result.seconds,
                   result.output_bytes);
    const std::string message = message_of(its);
    text += message.empty() ? "\n" : fmt::format("  {}\n", safe_message(message));
  }
  return text + fmt::format("{} tasks: {}\n", plan.tasks.size(), counts_text(status));
}

std::string report_text(const Report& report) {
  std::string text = status_text(*report.plan, report.status);
  text += sums_text(report) + "\n" + proofs_text(report) + "\n";
  for (const FailureGroup& group : report.failures) {
    text += fmt::format("{} x {} (exit {}): {}\n    {}\n", group.tasks.size(), group.reason,
                        group.exit, safe_message(group.message), ids_text(group.tasks));
  }
  return text;
}

std::string report_markdown(const Report& report) {
  std::string text =
      fmt::format("# Batch {}\n\n{} tasks: {}\n\n{}\n\n{}\n", cell(report.plan->path),
                  report.plan->tasks.size(), counts_text(report.status), sums_text(report),
                  proofs_text(report));
  if (!report.failures.empty()) {
    text += "\n## Failures\n\n| tasks | class | exit | message | ids |\n|---|---|---|---|---|\n";
  }
  for (const FailureGroup& group : report.failures) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", group.tasks.size(), group.reason,
                        group.exit, cell(group.message), cell(ids_text(group.tasks)));
  }
  text +=
      "\n## Tasks\n\n| index | id | state | attempts | seconds | bytes | parity | sha256 |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const Task& task : report.plan->tasks) {
    const TaskStatus& its = report.status.tasks[task.index];
    const AttemptResult result = its.result.value_or(AttemptResult());
    text += fmt::format("| {} | {} | {} | {} | {:.2f} | {} | {} | {} |\n", task.index,
                        cell(task.id), state_name(its), its.attempts, result.seconds,
                        result.output_bytes, parity_text(its), result.sha256);
  }
  return text;
}

}  // namespace ferry::batch
