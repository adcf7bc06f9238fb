// A request to stop, which SIGINT, SIGTERM and SIGHUP make. Long loops poll it and return an error,
// so that destructors clean up.
#pragma once

#include "core/result.h"

namespace ferry {

// Notes that `signal` asked to stop. The first signal is kept. A signal handler may call this.
void request_interrupt(int signal) noexcept;
// Returns the number of the signal that asked to stop, or 0.
int interrupt_signal() noexcept;
// Withdraws the request, so that later work runs.
void clear_interrupt() noexcept;
// Returns kInterrupted after a request to stop. Costs one relaxed load.
Status check_interrupt();

}  // namespace ferry
