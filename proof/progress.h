// Types for reporting the progress of a proof.
#pragma once

#include <functional>

#include "core/progress.h"

namespace ferry::proof {

// Receives (done, total) in bytes or tokens, one call at a time. May be empty.
using Progress = ShowProgress;
// Returns a Progress for work that is called `label` ("comparing weights"). May be empty.
using ProgressFor = std::function<Progress(const char* label, ProgressUnit unit)>;

// Returns the Progress for work that is called `label`; empty if `progress` is empty.
inline Progress progress_of(const ProgressFor& progress, const char* label,
                            ProgressUnit unit = ProgressUnit::kBytes) {
  return progress ? progress(label, unit) : Progress();
}

}  // namespace ferry::proof
