// Writes scripts that run a plan under Slurm or Kubernetes. Nothing here submits a script.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

// Options that the scripts of all schedulers have.
struct ScriptOptions {
  std::string plan;               // path of the plan
  std::string program = "ferry";  // name on the PATH, or path
  std::string folder;             // working directory, to which paths in the plan are relative
  size_t tasks = 0;               // number of tasks in the plan
  size_t tasks_per_index = 1;     // tasks of one run
  size_t at_once = 0;             // most runs at a time; 0: no limit
  std::vector<std::string> words = {};  // further arguments of `ferry batch run`

  size_t runs() const { return (tasks + tasks_per_index - 1) / tasks_per_index; }
};

struct SlurmOptions {
  ScriptOptions script;
  size_t max_array = 1001;    // MaxArraySize of the site, which every index is less than
  bool requeue_self = false;  // requeue interrupted tasks: the site does not set RequeueExit=75
  std::string report;         // file for the report that a last job writes; empty: no report
};

// Returns a bash script that submits one job array, or several if `max_array` is too small for one,
// and then a job for the report. The script passes its arguments to sbatch. Returns kUsage for
// paths with line breaks or backslashes, which sbatch cannot be given.
Result<std::string> slurm_script(const SlurmOptions& options);

struct KubernetesOptions {
  ScriptOptions script;
  std::string name;    // name of the Job
  std::string image;   // container image that holds `program`
  std::string claim;   // PersistentVolumeClaim with the plan, the checkpoints and the bundles
  std::string mount;   // path where the claim is mounted; `folder` is below it
  size_t retries = 6;  // backoffLimitPerIndex
};

// Returns the manifest of an Indexed Job. Returns kUsage for a name that Kubernetes does not allow,
// and for more than 100,000 indices.
Result<std::string> kubernetes_manifest(const KubernetesOptions& options);

// Returns a name of lower-case letters, digits and '-': "ferry-plan" for "plan.jsonl".
std::string job_name(const std::string& plan);

}  // namespace ferry::batch
