// What is to be done for a task, by what has been recorded of it and by what there is.
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

// How closely the fingerprint looks at files that are larger than 1 MiB.
enum class Thoroughness {
  kStat,   // name, size, time of the last change, first and last 16 KiB
  kBytes,  // every byte, and no time
};

struct Fingerprint {
  std::string text;  // "stat:" or "bytes:" and the digest
  uint64_t input_bytes = 0;
};

// `keep_on` is called between pieces of files; its error ends the work.
Result<Fingerprint> fingerprint_of(const Task& task, Thoroughness thoroughness,
                                   const std::function<Status()>& keep_on);

// How a fingerprint was made.
Thoroughness thoroughness_of(const std::string& fingerprint);

struct EvaluateOptions {
  bool force = false;  // what is in the way is replaced
  bool again = false;  // what has failed for good is tried again
  Thoroughness thoroughness = Thoroughness::kStat;
};

struct Evaluation {
  enum class Verdict {
    kUpToDate,      // `recorded` is its last success
    kFailedBefore,  // for good: `recorded` is how
    kTry,
    kHopeless,  // an attempt can only end with `problem`
  };
  Verdict verdict = Verdict::kTry;
  Fingerprint fingerprint = {};
  std::optional<AttemptResult> recorded = {};
  bool replace = false;        // what is there is to be overwritten
  std::string converted = {};  // the bundle of an earlier attempt, to be verified only: its digest
  std::optional<Error> problem = {};
};

// `keep_on` is called between pieces of files; its error ends the work.
Evaluation evaluate(const Task& task, const State& state, const EvaluateOptions& options,
                    const std::function<Status()>& keep_on);

// The SHA-256 of a bundle's manifest.json. nullopt where there is nothing at `path`, empty where
// there is something else.
std::optional<std::string> bundle_digest(const std::string& path);

}  // namespace ferry::batch
