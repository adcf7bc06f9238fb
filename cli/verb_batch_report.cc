// ferry batch status and ferry batch report show the records of a batch.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "batch/report.h"
#include "batch/state.h"
#include "batch/status.h"
#include "cli/batch_options.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "report/html_page.h"

namespace ferry::cli {
namespace {

// -- status

struct StatusLine {
  BatchPlace place;
  std::string array_spec;
  int64_t tasks_per_index = 1;
};

// Returns nullopt for "unfinished".
std::optional<batch::TaskState> state_named(const std::string& name) {
  const auto found = std::ranges::find(batch::kTaskStates, name);
  if (found == batch::kTaskStates.end()) return std::nullopt;
  return static_cast<batch::TaskState>(found - batch::kTaskStates.begin());
}

Result<int> print_spec(Context& context, const StatusLine& line, const batch::PlanStatus& status) {
  const int64_t per_index =
      FERRY_TRY(in_range("--tasks-per-index", line.tasks_per_index, 1, 1000000));
  const std::string spec =
      batch::array_spec(status, state_named(line.array_spec), static_cast<size_t>(per_index));
  const int exit = spec.empty() ? 1 : 0;
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("array_spec", spec).end_object();
    context.print_result(json.take(), exit);
  } else if (!spec.empty()) {
    context.print(spec + "\n");
  }
  return exit;
}

Result<int> status(Context& context, const StatusLine& line) {
  const std::chrono::seconds lease = FERRY_TRY(line.place.lease());
  const batch::Plan plan = FERRY_TRY(batch::read_plan(line.place.plan));
  const batch::PlanStatus all = FERRY_TRY(batch::status_of(plan, line.place.state_folder(), lease));
  if (!line.array_spec.empty()) return print_spec(context, line, all);
  if (context.json) {
    context.print_result(batch::status_json(plan, all), 0);
  } else {
    context.print(batch::status_text(plan, all));
  }
  return 0;
}

// -- report

struct ReportLine {
  BatchPlace place;
  std::string out;
};

std::string rendered(const batch::Report& made, BatchReportForm form) {
  switch (form) {
    case BatchReportForm::kMarkdown:
      return batch::report_markdown(made);
    case BatchReportForm::kJson:
      return batch::report_json(made);
    case BatchReportForm::kHtml:
      return report::html_page(report::PageKind::kBatch, "Batch of " + base_name(made.plan->path),
                               batch::report_json(made));
    case BatchReportForm::kText:
      break;
  }
  return batch::report_text(made);
}

Result<int> make_report(Context& context, const ReportLine& line) {
  const std::chrono::seconds lease = FERRY_TRY(line.place.lease());
  const BatchReportForm form =
      line.out.empty() ? BatchReportForm::kText : FERRY_TRY(batch_report_form("-o", line.out));
  const batch::Plan plan = FERRY_TRY(batch::read_plan(line.place.plan));
  const batch::Report made = FERRY_TRY(batch::make_report(plan, line.place.state_folder(), lease));
  const int exit = made.status.complete() ? 0 : 1;
  if (!line.out.empty()) {
    FERRY_RETURN_IF_ERROR(batch::write_small_file(line.out, line.out + ".ferry-new",
                                                  rendered(made, form), batch::Durable::kContents));
    context.note(fmt::format("wrote {}", printable(line.out)));
  }
  if (context.json) {
    context.print_result(batch::report_json(made), exit);
  } else if (line.out.empty()) {
    context.print(rendered(made, form));
  }
  return exit;
}

}  // namespace

Result<BatchReportForm> batch_report_form(const std::string& option, const std::string& path) {
  if (path.ends_with(".txt")) return BatchReportForm::kText;
  if (path.ends_with(".md")) return BatchReportForm::kMarkdown;
  if (path.ends_with(".json")) return BatchReportForm::kJson;
  if (path.ends_with(".html")) return BatchReportForm::kHtml;
  return fail(
      ErrorCode::kUsage,
      fmt::format("{} {}: the name ends with none of .html .json .md .txt", option, quoted(path)));
}

void add_batch_status(Verb& batch) {
  auto line = std::make_shared<StatusLine>();
  Verb verb = batch.verb("status", "Print the state of every task of a plan");
  add_place(verb, line->place);
  std::vector<std::string> words(batch::kTaskStates.begin(), batch::kTaskStates.end());
  words.emplace_back("unfinished");
  verb.choice("--array-spec", line->array_spec, words,
              "Print the indices of the tasks in a state as 3,17-19 for sbatch --array; exit code "
              "1 where there are none. unfinished: all but done and running")
      .option("--tasks-per-index M", line->tasks_per_index, "As for run; for --array-spec")
      .example("sbatch --array=$(ferry batch status plan.jsonl --array-spec failed) job.sh",
               "submits what has failed again")
      .exit_codes({{"1", "with --array-spec: no task is in that state"}})
      .action([line](Context& context) { return status(context, *line); });
}

void add_batch_report(Verb& batch) {
  auto line = std::make_shared<ReportLine>();
  Verb verb = batch.verb("report", "Sum up a batch; exit code 1 unless all tasks are done");
  add_place(verb, line->place);
  verb.option("-o,--out FILE", line->out,
              "File to write: .html, .json, .md or .txt; default: stdout")
      .example("ferry batch report plan.jsonl -o report.html", "makes a page to look at")
      .exit_codes({{"0", "all tasks are done"}, {"1", "some are not"}})
      .action([line](Context& context) { return make_report(context, *line); });
}

}  // namespace ferry::cli
