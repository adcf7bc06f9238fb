// How the work of this room says how far it is.
#pragma once

#include <functional>

#include "core/progress.h"
#include "core/progress_text.h"

namespace ferry::proof {

// Takes (done, total) bytes or tokens; may be empty. One call at a time.
using Progress = ShowProgress;
// A Progress for work that is called `label` ("comparing weights"); may be empty.
using ProgressFor = std::function<Progress(const char* label, ProgressUnit unit)>;

// Empty where nobody asked.
inline Progress progress_of(const ProgressFor& progress, const char* label,
                            ProgressUnit unit = ProgressUnit::kBytes) {
  return progress ? progress(label, unit) : Progress();
}

}  // namespace ferry::proof
