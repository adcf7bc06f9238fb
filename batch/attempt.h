// make_attempt() runs the processes of one attempt at a task, one after the other, and records the
// result.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "batch/evaluate.h"
#include "batch/plan.h"
#include "batch/result.h"
#include "batch/state.h"
#include "core/result.h"

namespace ferry::batch {

struct AttemptOptions {
  std::string program;  // path of the executable: ferry
  size_t threads = 1;   // threads of each process
  // Returns whether the lease still holds. Called several times a second.
  std::function<bool()> keep_lease = {};
};

// Ends early once a signal asks to stop (core/interrupt.h). A task that failed is a result. An
// error means that the record could not be written.
Result<AttemptResult> make_attempt(const Task& task, const Evaluation& evaluation,
                                   const State& state, const AttemptOptions& options);

}  // namespace ferry::batch
