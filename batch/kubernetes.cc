#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "batch/scripts.h"
#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

constexpr size_t kMostIndices = 100'000;
// Pods have "-INDEX-RANDOM" behind the name, and may have 63 characters.
constexpr size_t kLongestName = 50;

// A string of JSON is one of YAML.
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
  // Two pods of one index can run at the same time: hence the lease.
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
