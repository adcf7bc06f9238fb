// One attempt to do a task: its processes, one after the other, and the record of them.
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
  size_t threads = 1;   // for each process
  // Whether the lease still holds; asked several times a second.
  std::function<bool()> keep_lease = {};
};

// Ends early once a signal asks to stop (core/interrupt.h). An error means that the record could
// not be written.
Result<AttemptResult> make_attempt(const Task& task, const Evaluation& evaluation,
                                   const State& state, const AttemptOptions& options);

}  // namespace ferry::batch
