// Declares what the verbs below `ferry batch` share.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "batch/plan.h"
#include "batch/state.h"
#include "cli/command_line.h"

namespace ferry::cli {

// The paths of a plan and its state folder.
struct BatchPlace {
  std::string plan;
  std::string state;  // empty: the folder beside the plan
  int64_t lease_seconds = 600;

  batch::State state_folder() const;
  Result<std::chrono::seconds> lease() const;
};

void add_place(Verb& verb, BatchPlace& place);

// Returns `value`, or kUsage if it is not from `least` to `most`.
Result<int64_t> in_range(const char* option, int64_t value, int64_t least, int64_t most);

enum class BatchReportForm { kText, kMarkdown, kJson, kHtml };

// Returns the form that the ending of `path` names. Returns kUsage, with a message that begins with
// `option`, for another ending.
Result<BatchReportForm> batch_report_form(const std::string& option, const std::string& path);

// Each function adds one verb.
void add_batch_plan(Verb& batch);
void add_batch_run(Verb& batch);
void add_batch_status(Verb& batch);
void add_batch_report(Verb& batch);
void add_batch_slurm(Verb& batch);
void add_batch_k8s(Verb& batch);

}  // namespace ferry::cli
