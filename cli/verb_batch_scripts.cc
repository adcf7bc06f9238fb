// ferry batch slurm and ferry batch k8s print scripts for schedulers.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "batch/plan.h"
#include "batch/scripts.h"
#include "batch/shell.h"
#include "cli/batch_options.h"
#include "core/json_writer.h"

namespace ferry::cli {
namespace {

struct ScriptLine {
  std::string plan, program;
  int64_t tasks_per_index = 1, at_once = 0;
  std::vector<std::string> args;
};

void add_script(Verb& verb, ScriptLine& line, const char* program) {
  verb.positional("PLAN", line.plan, "Plan, as `ferry batch plan` prints it")
      .option("--tasks-per-index M", line.tasks_per_index,
              "Tasks of one index, one after the other")
      .option("--at-once K", line.at_once, "Indices at a time; 0: as many as there are")
      .option("--args WORDS", line.args, "Further words of ferry batch run, such as '--retries 3'")
      .option("--program PATH", line.program, program);
}

Result<batch::ScriptOptions> script_options(const ScriptLine& line) {
  constexpr int64_t kMost = 1'000'000;
  batch::ScriptOptions script;
  script.plan = line.plan;
  script.program = line.program;
  script.tasks = FERRY_TRY(batch::read_plan(line.plan)).tasks.size();
  script.tasks_per_index = static_cast<size_t>(
      FERRY_TRY(in_range("--tasks-per-index M", line.tasks_per_index, 1, kMost)));
  script.at_once = static_cast<size_t>(FERRY_TRY(in_range("--at-once K", line.at_once, 0, kMost)));
  for (const std::string& text : line.args) {
    const std::vector<std::string> words = FERRY_TRY(batch::shell_words(text));
    script.words.insert(script.words.end(), words.begin(), words.end());
  }
  return script;
}

int print_script(Context& context, const std::string& text) {
  if (!context.json) {
    context.print(text);
    return 0;
  }
  JsonWriter json;
  json.begin_object().member("script", text).end_object();
  context.print_result(json.take(), 0);
  return 0;
}

// -- slurm

struct SlurmLine {
  ScriptLine script;
  int64_t max_array = 1001;
  bool requeue_self = false;
  std::string report;
};

Result<int> slurm(Context& context, const SlurmLine& line) {
  batch::SlurmOptions options{.script = FERRY_TRY(script_options(line.script)),
                              .requeue_self = line.requeue_self,
                              .report = line.report};
  std::error_code problem;
  options.script.folder = std::filesystem::current_path(problem).string();
  if (options.script.program.empty()) {
    options.script.program = std::filesystem::read_symlink("/proc/self/exe", problem).string();
  }
  if (problem) return fail(ErrorCode::kIo, "the current folder has no path");
  if (options.report.empty()) options.report = line.script.plan + ".html";
  // A wrong ending must be refused now, not when the report is made after all tasks.
  FERRY_TRY(batch_report_form("--report", options.report));
  options.max_array =
      static_cast<size_t>(FERRY_TRY(in_range("--max-array", line.max_array, 2, 4'000'001)));
  return print_script(context, FERRY_TRY(batch::slurm_script(options)));
}

// -- k8s

struct KubernetesLine {
  ScriptLine script;
  std::string name, image, claim, mount = "/data", folder;
  int64_t retries = 6;
};

Result<int> k8s(Context& context, const KubernetesLine& line) {
  if (line.image.empty() || line.claim.empty()) {
    return fail(ErrorCode::kUsage, "--image and --claim are required");
  }
  const auto retries = FERRY_TRY(in_range("--index-retries N", line.retries, 0, 1000));
  batch::KubernetesOptions options{
      .script = FERRY_TRY(script_options(line.script)),
      .name = line.name.empty() ? batch::job_name(line.script.plan) : line.name,
      .image = line.image,
      .claim = line.claim,
      .mount = line.mount,
      .retries = static_cast<size_t>(retries)};
  options.script.folder = line.folder.empty() ? line.mount : line.folder;
  if (options.script.program.empty()) options.script.program = "ferry";
  return print_script(context, FERRY_TRY(batch::kubernetes_manifest(options)));
}

}  // namespace

void add_batch_slurm(Verb& batch) {
  auto line = std::make_shared<SlurmLine>();
  Verb verb = batch.verb("slurm", "Print a script that submits a plan to Slurm");
  add_script(verb, line->script, "ferry on the nodes; default: the path of this program");
  verb.option("--max-array N", line->max_array,
              "MaxArraySize of the site: larger plans become several arrays")
      .flag("--requeue-self", line->requeue_self,
            "Tasks queue themselves again, where the site does not set RequeueExit=75")
      .option("--report FILE", line->report,
              "Report that a last job writes: .html, .json, .md or .txt; default: PLAN.html")
      .example(
          "ferry batch slurm plan.jsonl --at-once 8 > submit.sh && bash submit.sh --time=2:00:00",
          "submits the plan, eight tasks at a time; further words go to sbatch")
      .action([line](Context& context) { return slurm(context, *line); });
}

void add_batch_k8s(Verb& batch) {
  auto line = std::make_shared<KubernetesLine>();
  Verb verb = batch.verb("k8s", "Print an Indexed Job of Kubernetes that runs a plan");
  add_script(verb, line->script, "ferry in the image; default: ferry");
  verb.option("--image NAME", line->image, "Image of the container")
      .option("--claim NAME", line->claim,
              "PersistentVolumeClaim with plan, checkpoints and bundles")
      .option("--mount DIR", line->mount, "Where it is mounted")
      .option("--folder DIR", line->folder,
              "Folder in which the plan's paths hold; default: --mount")
      .option("--name NAME", line->name, "Name of the Job; default: made of that of the plan")
      .option("--index-retries N", line->retries, "backoffLimitPerIndex")
      .example("ferry batch k8s plan.jsonl --image ferry:1 --claim models | kubectl apply -f -",
               "runs the plan, which is in the volume, as an Indexed Job")
      .action([line](Context& context) { return k8s(context, *line); });
}

}  // namespace ferry::cli
