// A Report sums up the records of a batch and groups failures by their message.
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
  std::string reason, message;  // message: with INPUT and OUTPUT in place of the paths of the task
  int exit = 0;
  std::vector<std::string> tasks;  // ids of the tasks
};

struct HostWork {
  uint64_t attempts = 0;
  double seconds = 0;
};

struct Report {
  const Plan* plan = nullptr;  // must outlive the report
  PlanStatus status;
  uint64_t attempts = 0, input_bytes = 0, output_bytes = 0, max_rss_bytes = 0;
  double seconds = 0, processor_seconds = 0;
  std::string start, end;  // UTC times; empty if there was no attempt
  uint64_t proven = 0, not_proven = 0, not_asked = 0;
  std::vector<FailureGroup> failures;     // sorted by descending number of tasks
  std::map<std::string, HostWork> hosts;  // the keys are names of hosts
};

// Escapes the control characters of a message from a state folder, which others can write. Quotes
// and names that are escaped already stay as they are.
std::string safe_message(std::string_view message);

Result<Report> make_report(const Plan& plan, const State& state, std::chrono::seconds lease);

// Returns the JSON document that docs/batch.md describes.
std::string report_json(const Report& report);
std::string report_text(const Report& report);
// Returns Markdown for CI pages and issue trackers.
std::string report_markdown(const Report& report);

// Return the table and the JSON document of `ferry batch status`.
std::string status_text(const Plan& plan, const PlanStatus& status);
std::string status_json(const Plan& plan, const PlanStatus& status);

}  // namespace ferry::batch
