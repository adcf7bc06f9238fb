// Scripts that run a plan under a scheduler. They are printed, never submitted.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

// What every script runs.
struct ScriptOptions {
  std::string plan;                     // path
  std::string program = "ferry";        // a name on the PATH, or a path
  std::string folder;                   // in which paths of the plan mean what they say
  size_t tasks = 0;                     // of the plan
  size_t tasks_per_index = 1;           // tasks for one run
  size_t at_once = 0;                   // runs at a time; 0: no limit
  std::vector<std::string> words = {};  // further words of `ferry batch run`

  size_t runs() const { return (tasks + tasks_per_index - 1) / tasks_per_index; }
};

struct SlurmOptions {
  ScriptOptions script;
  size_t max_array = 1001;    // MaxArraySize of the site: indices are smaller
  bool requeue_self = false;  // where the site does not set RequeueExit=75
  std::string report;         // a file that a job makes at the end; empty: none
};

// A bash script that submits one array, or several where the site allows no larger one, and a job
// behind them for the report. Its own arguments go to sbatch. kUsage where a path cannot be said to
// sbatch.
Result<std::string> slurm_script(const SlurmOptions& options);

struct KubernetesOptions {
  ScriptOptions script;
  std::string name;    // of the Job
  std::string image;   // that holds `program`
  std::string claim;   // PersistentVolumeClaim with the plan, the checkpoints and the bundles
  std::string mount;   // where it is mounted; `folder` is in it
  size_t retries = 6;  // of one index
};

// A manifest of an Indexed Job. kUsage for a name that is none of Kubernetes, and for more indices
// than it allows.
Result<std::string> kubernetes_manifest(const KubernetesOptions& options);

// "plan.jsonl" -> "ferry-plan": letters, digits and '-'.
std::string job_name(const std::string& plan);

}  // namespace ferry::batch
