// ferry batch plan writes a plan, and ferry batch run runs its tasks.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/find_checkpoints.h"
#include "batch/report.h"
#include "batch/run.h"
#include "batch/shell.h"
#include "cli/batch_options.h"
#include "cli/option_values.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

using batch::RunEnd;
using batch::TaskEnd;
using EndKind = batch::TaskEnd::Kind;

// -- plan

struct PlanLine {
  batch::PlanOptions plan;
  std::vector<std::string> args, verify;
};

// Parses the words as options of `convert`, so that a mistake is an error of the plan instead of
// one of every task.
Status check_args(const std::vector<std::string>& args) {
  std::vector<std::string> words = {"ferry", "convert", "SRC", "--out", "BUNDLE"};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Context context;
  CommandLine line(context);
  add_convert(line);
  if (const auto parsed = line.parse(static_cast<int>(argv.size()), argv.data()); !parsed) {
    return fail(ErrorCode::kUsage, fmt::format("--args: {}", parsed.error().message));
  }
  return {};
}

Status settle_plan(PlanLine& line) {
  if (line.plan.out_dir.empty()) {
    return fail(ErrorCode::kUsage, "--out-dir is required: the folder of the bundles");
  }
  for (const std::string& text : line.args) {
    const std::vector<std::string> words = FERRY_TRY(batch::shell_words(text));
    line.plan.args.insert(line.plan.args.end(), words.begin(), words.end());
  }
  FERRY_RETURN_IF_ERROR(check_args(line.plan.args));
  for (const std::string& how : line.verify) {
    if (how == "embedded") {
      line.plan.verify.embedded = true;
    } else if (how == "checkpoint") {
      line.plan.verify.checkpoint = true;
    } else if (how == "check") {
      line.plan.verify.check = true;
    } else {
      return fail(ErrorCode::kUsage,
                  fmt::format("--verify {}: not embedded, checkpoint or check", quoted(how)));
    }
  }
  return {};
}

void note_left_out(Context& context, const std::vector<std::string>& folders) {
  constexpr size_t kMost = 20;
  for (size_t i = 0; i < std::min(folders.size(), kMost); ++i) {
    context.note(fmt::format("{}: left out: {}", printable(folders[i]), batch::kNoWeights));
  }
  if (folders.size() <= kMost) return;
  context.note(fmt::format("and {} more are left out, which --json lists", folders.size() - kMost));
}

Result<int> plan(Context& context, PlanLine& line) {
  FERRY_RETURN_IF_ERROR(settle_plan(line));
  const batch::PlannedText planned = FERRY_TRY(batch::make_plan(line.plan));
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("tasks", planned.tasks).member("plan", planned.text);
    json.key("left_out").begin_array();
    for (const std::string& path : planned.without_weights) {
      json.begin_object().member("path", path).member("reason", batch::kNoWeights).end_object();
    }
    context.print_result(json.end_array().end_object().take(), 0);
  } else {
    context.print(planned.text);
  }
  context.note(fmt::format("{} checkpoints", planned.tasks));
  note_left_out(context, planned.without_weights);
  return 0;
}

// -- run

struct RunLine {
  BatchPlace place;
  std::optional<int64_t> workers, task;
  int64_t tasks_per_index = 1, retries = 0;
  bool force = false, again = false, lease = false, no_wait = false, hash_inputs = false;
};

// Returns the index that a scheduler has set in the environment of the task, if any.
Result<std::optional<int64_t>> index_of_scheduler(Context& context) {
  for (const char* name : {"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::optional<int64_t> index = parse_integer(text);
    if (!index) return fail(ErrorCode::kUsage, fmt::format("{}={}: no number", name, quoted(text)));
    context.note(fmt::format("--task {}, of {}", *index, name));
    return index;
  }
  return std::optional<int64_t>();
}

// Returns the indices of the tasks that belong to one index of a job array.
Result<std::vector<size_t>> tasks_of(int64_t index, int64_t per_index, size_t tasks) {
  const int64_t runs = (static_cast<int64_t>(tasks) + per_index - 1) / per_index;
  if (index < 0 || index >= runs) {
    return fail(ErrorCode::kUsage,
                fmt::format("--task {}: the plan has {}, from 0 to {}", index, runs, runs - 1));
  }
  const size_t first = static_cast<size_t>(index * per_index);
  std::vector<size_t> indices(std::min(static_cast<size_t>(per_index), tasks - first));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

const char* name_of(const TaskEnd& end) {
  switch (end.kind) {
    case EndKind::kUpToDate:
      return "up_to_date";
    case EndKind::kFailedBefore:
      return "failed_before";
    case EndKind::kElsewhere:
      return "elsewhere";
    case EndKind::kNotBegun:
      return "not_begun";
    case EndKind::kAttempted:
      break;
  }
  return batch::name_of(end.result.outcome);
}

constexpr std::array<const char*, 7> kEndNames = {
    "done", "up_to_date", "failed", "failed_before", "interrupted", "elsewhere", "not_begun"};

std::array<size_t, kEndNames.size()> count(const RunEnd& run) {
  std::array<size_t, kEndNames.size()> counts = {};
  for (const TaskEnd& end : run.tasks) {
    const auto found = std::ranges::find(kEndNames, std::string_view(name_of(end)));
    ++counts[static_cast<size_t>(found - kEndNames.begin())];
  }
  return counts;
}

std::string run_json(const batch::Plan& plan, const RunEnd& run) {
  JsonWriter json;
  json.begin_object().key("plan").begin_object().member("path", plan.path);
  json.member("sha256", plan.sha256).member("tasks", plan.tasks.size()).end_object();
  json.member("interrupted", run.interrupted).member("full_disk", run.full_disk);
  json.key("counts").begin_object();
  const auto counts = count(run);
  for (size_t i = 0; i < counts.size(); ++i) json.member(kEndNames[i], counts[i]);
  json.end_object().key("tasks").begin_array();
  for (const TaskEnd& end : run.tasks) {
    json.begin_object().member("index", end.index).member("id", plan.tasks[end.index].id);
    json.member("end", name_of(end)).member("exit", batch::exit_of(end));
    json.member("class", batch::name_of(end.result.reason));
    json.member("message", end.result.message).member("attempt", end.result.attempt);
    json.member("seconds", end.result.seconds).end_object();
  }
  json.end_array().end_object();
  return json.take();
}

std::string run_text(const RunEnd& run) {
  std::string text;
  const auto counts = count(run);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    std::string name = kEndNames[i];
    std::ranges::replace(name, '_', ' ');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[i], name);
  }
  return fmt::format("{} tasks: {}\n", run.tasks.size(), text);
}

std::string line_of(const batch::Plan& plan, const TaskEnd& end) {
  const std::string& id = plan.tasks[end.index].id;
  if (end.kind == EndKind::kElsewhere) return fmt::format("{}: another process has it", id);
  if (end.result.outcome == batch::Outcome::kDone) {
    return fmt::format("{}: done in {:.2f} s", id, end.result.seconds);
  }
  return fmt::format("{}: {}{}: {}", id, batch::name_of(end.result.outcome),
                     end.kind == EndKind::kFailedBefore ? " before (--again tries again)" : "",
                     batch::safe_message(end.result.message));
}

Result<batch::RunOptions> run_options(Context& context, const RunLine& line, bool pulls) {
  constexpr int64_t kMostWorkers = 1024, kMostRetries = 1000;
  batch::RunOptions options;
  options.program = "/proc/self/exe";
  options.workers = static_cast<size_t>(
      FERRY_TRY(in_range("--workers", line.workers.value_or(1), 1, kMostWorkers)));
  options.threads =
      context.threads > 0 ? static_cast<size_t>(context.threads) : ThreadPool::hardware_threads();
  options.retries = FERRY_TRY(in_range("--retries", line.retries, 0, kMostRetries));
  options.leases = pulls || line.lease;
  options.wait = !line.no_wait;
  options.lease = FERRY_TRY(line.place.lease());
  options.evaluate = {
      .force = line.force,
      .again = line.again,
      .thoroughness = line.hash_inputs ? batch::Thoroughness::kBytes : batch::Thoroughness::kStat};
  return options;
}

Result<int> run_batch_line(Context& context, const RunLine& line) {
  const int64_t per_index =
      FERRY_TRY(in_range("--tasks-per-index", line.tasks_per_index, 1, 1000000));
  std::optional<int64_t> index = line.task;
  if (!index && !line.workers) index = FERRY_TRY(index_of_scheduler(context));
  if (!index && per_index > 1) {
    return fail(ErrorCode::kUsage,
                "--tasks-per-index belongs to --task, or to the index of a scheduler");
  }
  const batch::RunOptions options = FERRY_TRY(run_options(context, line, !index.has_value()));
  const batch::Plan plan = FERRY_TRY(batch::read_plan(line.place.plan));
  std::vector<size_t> indices(plan.tasks.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  if (index) indices = FERRY_TRY(tasks_of(*index, per_index, plan.tasks.size()));
  also_stop_on(SIGUSR1);
  const auto report = [&](const TaskEnd& end) {
    if (end.kind != EndKind::kUpToDate) context.note(line_of(plan, end));
  };
  const RunEnd end =
      FERRY_TRY(batch::run_tasks(plan, indices, line.place.state_folder(), options, report));
  if (!end.full_disk.empty()) {
    context.note(fmt::format("the disk is full ({}): the run ends; make room and start it again",
                             batch::safe_message(end.full_disk)));
  }
  if (context.json) {
    context.print_result(run_json(plan, end), end.exit);
  } else {
    context.print(run_text(end));
  }
  return end.exit;
}

}  // namespace

void add_batch_plan(Verb& batch) {
  auto line = std::make_shared<PlanLine>();
  batch.verb("plan", "Print a plan for all checkpoints below folders")
      .positional("DIR", line->plan.directories, "Folders in which checkpoints are looked for")
      .finds_models()
      .option("--out-dir DIR", line->plan.out_dir, "Folder of the bundles to make")
      .option("--args WORDS", line->args,
              "Words of ferry convert for every task, such as '--dtype bf16'")
      .option("--verify HOW", line->verify,
              "How bundles are proven: embedded, checkpoint or check (may be repeated)")
      .example("ferry batch plan runs --out-dir bundles --args '--dtype bf16' > plan.jsonl",
               "plans a bundle for every checkpoint in or below runs")
      .action([line](Context& context) { return plan(context, *line); });
}

void add_batch_run(Verb& batch) {
  auto line = std::make_shared<RunLine>();
  Verb verb = batch.verb("run", "Do the tasks of a plan that are not done");
  add_place(verb, line->place);
  verb.option("--workers K", line->workers, "Tasks at a time; default: 1")
      .option("--task N", line->task,
              "One task, counted from 0; default: $SLURM_ARRAY_TASK_ID or $JOB_COMPLETION_INDEX "
              "without --workers, else all tasks")
      .option("--tasks-per-index M", line->tasks_per_index,
              "--task N stands for this many tasks from N times this many on")
      .option("--retries N", line->retries, "For failures that may pass, such as a full disk")
      .flag("--force", line->force, "Replace bundles of another fingerprint")
      .flag("--again", line->again, "Try again what has failed for good")
      .flag("--lease", line->lease, "Take leases with --task too")
      .flag("--no-wait", line->no_wait, "Leave tasks that other processes have leases on")
      .flag("--hash-inputs", line->hash_inputs, "Fingerprints of every byte of the inputs")
      .example("ferry batch run plan.jsonl --workers 4 --retries 3",
               "does what is not done yet, four tasks at a time")
      .exit_codes({{"0", "all of these tasks are done"},
                   {"1", "a task found no parity, damage, or what was not expected"},
                   {"74", "the disk is full, and the run has ended: make room and run it again"},
                   {"75", "interrupted, or failed for a reason that may pass: run it again"}})
      .action([line](Context& context) { return run_batch_line(context, *line); });
}

void add_batch(CommandLine& line) {
  Verb batch = line.verb("batch", "Convert many checkpoints, here or on a cluster");
  batch.description(
      "A plan has a line for each task. What is done is not done again, so that a batch can be "
      "stopped at any time and started again.");
  add_batch_plan(batch);
  add_batch_run(batch);
  add_batch_status(batch);
  add_batch_report(batch);
  add_batch_slurm(batch);
  add_batch_k8s(batch);
}

}  // namespace ferry::cli
