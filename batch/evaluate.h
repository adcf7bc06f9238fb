// evaluate() compares a task with its records and with the files on disk, and says whether to run
// the task.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "batch/plan.h"
#include "batch/result.h"
#include "batch/state.h"
#include "core/result.h"

namespace ferry::batch {

// Says which properties of files larger than 1 MiB are part of a fingerprint. Smaller files count
// with every byte.
enum class Thoroughness {
  kStat,   // name, size, time of the last change, first and last 16 KiB
  kBytes,  // name, size and every byte
};

struct Fingerprint {
  std::string text;  // "stat:" or "bytes:" and a SHA-256
  uint64_t input_bytes = 0;
};

// Two tasks with equal fingerprints make equal bundles and verify them equally. `keep_on` is called
// between pieces of files; its error is returned.
Result<Fingerprint> fingerprint_of(const Task& task, Thoroughness thoroughness,
                                   const std::function<Status()>& keep_on);

// Returns the thoroughness with which a Fingerprint::text was made.
Thoroughness thoroughness_of(const std::string& fingerprint);

struct EvaluateOptions {
  bool force = false;  // replace an existing output
  bool again = false;  // retry a task whose failure is final
  Thoroughness thoroughness = Thoroughness::kStat;
};

struct Evaluation {
  enum class Verdict {
    kUpToDate,      // the task is done; `recorded` is its last success
    kFailedBefore,  // the failure `recorded` is final
    kTry,           // the task is to be run
    kHopeless,      // an attempt can only end with `problem`
  };
  Verdict verdict = Verdict::kTry;
  Fingerprint fingerprint = {};
  std::optional<AttemptResult> recorded = {};
  bool replace = false;  // overwrite the existing output
  // The digest of a bundle that an earlier attempt made, and that is only to be verified.
  std::string converted = {};
  std::optional<Error> problem = {};
};

// `keep_on` is called between pieces of files; its error becomes Evaluation::problem.
Evaluation evaluate(const Task& task, const State& state, const EvaluateOptions& options,
                    const std::function<Status()>& keep_on);

// Returns the SHA-256 of a bundle's manifest.json, nullopt if nothing exists at `path`, and an
// empty text if something else exists there. A part of a bundle has another file instead of the
// manifest.
std::optional<std::string> bundle_digest(const std::string& path);

}  // namespace ferry::batch
