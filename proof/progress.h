// How a proof says how far it is.
#pragma once

#include <functional>

#include "core/progress.h"
#include "core/progress_text.h"

namespace ferry::proof {

// Takes (done, total) bytes or tokens; may be empty. One call at a time.
using Progress = ShowProgress;
// A Progress for work that is called `label` ("comparing weights"); may be empty.
using ProgressFor = std::function<Progress(const char* label, ProgressUnit unit)>;

// The Progress of work that is called `label`; empty where `progress` is.
inline Progress progress_of(const ProgressFor& progress, const char* label,
                            ProgressUnit unit = ProgressUnit::kBytes) {
  return progress ? progress(label, unit) : Progress();
}

}  // namespace ferry::proof
