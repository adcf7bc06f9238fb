#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "batch/report.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

constexpr size_t kShownIds = 8;

std::string_view state_name(const TaskStatus& status) {
  return kTaskStates[static_cast<size_t>(status.state)];
}

// "17 done, 2 failed, 1 waiting".
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

// A cell of a table: names and messages from files cannot end it or become markup.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : safe_message(text)) {
    if (std::string_view("\\`*_{}[]<>()#+-!|&~").find(c) != std::string_view::npos) safe += '\\';
    safe += c;
  }
  return safe;
}

}  // namespace

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
