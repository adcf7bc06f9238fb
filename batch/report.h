// What a batch came to: sums, failures grouped by their message, a line for each task.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "batch/plan.h"
#include "batch/state.h"
#include "batch/status.h"
#include "core/result.h"

namespace ferry::batch {

struct FailureGroup {
  std::string reason, message;  // with INPUT, OUTPUT and ID for the task's own
  int exit = 0;
  std::vector<std::string> tasks;  // ids
};

struct HostWork {
  uint64_t attempts = 0;
  double seconds = 0;
};

struct Report {
  const Plan* plan = nullptr;  // outlives the report
  PlanStatus status;
  uint64_t attempts = 0, input_bytes = 0, output_bytes = 0, max_rss_bytes = 0;
  double seconds = 0, processor_seconds = 0;
  std::string start, end;  // empty where nothing was tried
  uint64_t proven = 0, not_proven = 0, not_asked = 0;
  std::vector<FailureGroup> failures;  // those of most tasks first
  std::map<std::string, HostWork> hosts;
};

// A message has its own quotes, which stay as they are, and escaped names; state folders are
// written by others, so all else is made safe again.
std::string safe_message(std::string_view message);

Result<Report> make_report(const Plan& plan, const State& state, std::chrono::seconds lease);

// docs/batch.md describes it.
std::string report_json(const Report& report);
std::string report_text(const Report& report);
// For CI and issue trackers.
std::string report_markdown(const Report& report);

// The table of `ferry batch status`, and its JSON.
std::string status_text(const Plan& plan, const PlanStatus& status);
std::string status_json(const Plan& plan, const PlanStatus& status);

}  // namespace ferry::batch
