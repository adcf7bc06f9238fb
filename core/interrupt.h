// A request to stop, as SIGINT, SIGTERM and SIGHUP make it. Long loops poll it and return an error,
// so that everything on the way out is cleaned up by its destructor.
#pragma once

#include "core/result.h"

namespace ferry {

// Notes that `signal` (of the system's numbers) asked to stop; the first one is kept. May be called
// by a signal handler.
void request_interrupt(int signal) noexcept;
// The signal that asked to stop, or 0.
int interrupt_signal() noexcept;
// Takes the request back, so that later work runs.
void clear_interrupt() noexcept;
// kInterrupted once something has asked to stop. Costs a relaxed load.
Status check_interrupt();

}  // namespace ferry
