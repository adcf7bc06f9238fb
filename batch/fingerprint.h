// The fingerprint of a task: the same where converting again would give the same bundle.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "batch/plan.h"
#include "core/result.h"

namespace ferry::batch {

// What counts of files that are larger than 1 MiB.
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

}  // namespace ferry::batch
