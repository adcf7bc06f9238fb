#include "batch/scripts.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "batch/shell.h"
#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

// Escapes '%', because sbatch replaces patterns such as %A in names of files.
std::string file_pattern(const std::string& path) {
  std::string pattern;
  for (const char c : path) pattern += c == '%' ? std::string("%%") : std::string(1, c);
  return pattern;
}

// Returns the command line of one array task.
std::string task_command(const SlurmOptions& options, size_t first_run) {
  const ScriptOptions& script = options.script;
  std::vector<std::string> words = {script.program, "batch", "run", as_operand(script.plan)};
  if (script.tasks_per_index != 1) {
    words.insert(words.end(), {"--tasks-per-index", fmt::format("{}", script.tasks_per_index)});
  }
  words.insert(words.end(), script.words.begin(), script.words.end());
  const std::string index = first_run == 0
                                ? "\"$SLURM_ARRAY_TASK_ID\""
                                : fmt::format("$(({} + SLURM_ARRAY_TASK_ID))", first_run);
  return fmt::format("{} --task {}", shell_line(words), index);
}

// Requeues an interrupted task like the site's RequeueExit=75, at most 5 times. The shell must
// outlive the command, so it passes signals on.
std::string requeue_lines(const std::string& command) {
  return fmt::format(R"({} &
child=$!
stopping=
trap 'stopping=1; kill -TERM "$child"' TERM INT USR1
# A signal ends the wait, not the process.
while :; do
  code=0
  wait "$child" || code=$?
  kill -0 "$child" 2>/dev/null || break
done
if [ -n "$stopping" ]; then
  code=0
  wait "$child" || code=$?
fi
if [ "$code" = 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt 5 ]; then
  exec scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
)",
                     command);
}

std::string array_lines(const SlurmOptions& options, size_t first_run, size_t runs) {
  const ScriptOptions& script = options.script;
  std::string array = fmt::format("--array=0-{}", runs - 1);
  if (script.at_once > 0) array += fmt::format("%{}", script.at_once);
  const std::string pattern = file_pattern(script.plan) + ".slurm/%A_%a.out";
  const std::string command = task_command(options, first_run);
  return fmt::format(
      R"(job=$(sbatch --parsable {} --job-name={} --requeue --open-mode=append \
  --signal=B:TERM@60 --output={} "$@" <<'FERRY_TASK'
#!/bin/bash
{}FERRY_TASK
)
jobs="$jobs:${{job%%;*}}"
)",
      array, shell_word(job_name(script.plan)), shell_word(pattern),
      options.requeue_self ? requeue_lines(command) : fmt::format("exec {}\n", command));
}

std::string report_lines(const SlurmOptions& options) {
  const ScriptOptions& script = options.script;
  const std::string pattern = file_pattern(script.plan + ".slurm/report.out");
  const std::string command =
      shell_line({script.program, "batch", "report", as_operand(script.plan), "-o",
                  as_operand(options.report)});
  return fmt::format(R"(# afterany: the report is wanted whatever the tasks came to.
report=$(sbatch --parsable --dependency="afterany$jobs" --job-name={} --open-mode=append \
  --output={} <<'FERRY_REPORT'
#!/bin/bash
exec {}
FERRY_REPORT
)
echo "arrays ${{jobs#:}}, report ${{report%%;*}}"
)",
                     shell_word(job_name(script.plan) + "-report"), shell_word(pattern), command);
}

bool has_line_break(const std::string& text) { return text.find('\n') != std::string::npos; }

constexpr size_t kMostIndices = 100'000;
// Kubernetes appends "-INDEX-RANDOM" for the name of a pod, which may have 63 characters.
constexpr size_t kLongestName = 50;

// A JSON string is also a YAML string.
std::string yaml(std::string_view text) {
  JsonWriter json;
  json.value(text);
  std::string line = json.take();
  line.pop_back();
  return line;
}

bool is_label(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos &&
         name.front() != '-' && name.back() != '-';
}

std::string command_lines(const ScriptOptions& script) {
  // Kubernetes may run two pods of one index at the same time, so the command takes leases.
  std::vector<std::string> words = {script.program, "batch", "run", script.plan, "--lease"};
  if (script.tasks_per_index != 1) {
    words.insert(words.end(), {"--tasks-per-index", fmt::format("{}", script.tasks_per_index)});
  }
  words.insert(words.end(), script.words.begin(), script.words.end());
  std::string lines;
  for (const std::string& word : words) lines += fmt::format("            - {}\n", yaml(word));
  return lines;
}

}  // namespace

Result<std::string> slurm_script(const SlurmOptions& options) {
  const ScriptOptions& script = options.script;
  for (const std::string& text : {script.plan, script.program, script.folder, options.report}) {
    if (!has_line_break(text) && text.find('\\') == std::string::npos) continue;
    return fail(ErrorCode::kUsage,
                fmt::format("{}: sbatch cannot be told a path with a line break or a backslash",
                            quoted(text)));
  }
  std::string text = fmt::format(R"(#!/bin/bash
# Submits {} tasks of {}: `bash THIS_SCRIPT [OPTIONS OF SBATCH...]`, such as
# --partition, --time, --mem, --cpus-per-task. Where the site sets RequeueExit=75, what was
# interrupted is queued again by itself. Otherwise run this script again: what is done is not done
# again.
set -euo pipefail
cd -- {}
mkdir -p -- {}
jobs=
)",
                                 script.tasks, quoted(script.plan), shell_word(script.folder),
                                 shell_word(script.plan + ".slurm"));
  const size_t most = std::max<size_t>(1, options.max_array - 1);
  for (size_t first = 0; first < script.runs(); first += most) {
    text += array_lines(options, first, std::min(most, script.runs() - first));
  }
  text += options.report.empty() ? "echo \"arrays ${jobs#:}\"\n" : report_lines(options);
  return text;
}

std::string job_name(const std::string& plan) {
  std::string stem = base_name(plan);
  stem = stem.substr(0, stem.find('.'));
  std::string name = "ferry-";
  for (const char c : stem) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += plain ? c : upper ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  name = name.substr(0, kLongestName);
  return name.substr(0, name.find_last_not_of('-') + 1);
}

Result<std::string> kubernetes_manifest(const KubernetesOptions& options) {
  const ScriptOptions& script = options.script;
  if (!is_label(options.name)) {
    return fail(ErrorCode::kUsage, fmt::format("--name {}: not 1 to {} of a-z 0-9 -",
                                               quoted(options.name), kLongestName));
  }
  if (script.runs() > kMostIndices) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} indices, more than {}: --tasks-per-index makes fewer",
                            script.runs(), kMostIndices));
  }
  const size_t parallel =
      script.at_once == 0 ? script.runs() : std::min(script.at_once, script.runs());
  return fmt::format(
      R"(# {} tasks. `kubectl apply -f THIS_FILE`; to go on after it has ended, delete the Job and apply again:
# what is done is not done again.
apiVersion: batch/v1
kind: Job
metadata:
  name: {}
spec:
  completionMode: Indexed
  completions: {}
  parallelism: {}
  backoffLimitPerIndex: {}
  maxFailedIndexes: {}
  podFailurePolicy:
    rules:
      # The task itself has failed: another pod would fail alike.
      - action: FailIndex
        onExitCodes:
          containerName: ferry
          operator: In
          values: [1, 2, 3, 4, 6, 70]
      # The node was drained: that is no failure of the task.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 30
      containers:
        - name: ferry
          image: {}
          workingDir: {}
          command:
{}          volumeMounts:
            - name: data
              mountPath: {}
      volumes:
        - name: data
          persistentVolumeClaim:
            claimName: {}
)",
      script.tasks, yaml(options.name), script.runs(), parallel, options.retries, script.runs(),
      yaml(options.image), yaml(script.folder), command_lines(script), yaml(options.mount),
      yaml(options.claim));
}

}  // namespace ferry::batch
