// A request to stop, which SIGINT, SIGTERM and SIGHUP make. Long loops poll it and return an error,
// so that destructors clean up.
#pragma once

#include <atomic>

#include "core/result.h"

namespace ferry {

// Notes that `signal` asked to stop. The first signal is kept. A signal handler may call this.
void request_interrupt(int signal) noexcept;
// Returns the number of the signal that asked to stop, or 0.
int interrupt_signal() noexcept;
// Withdraws the request, so that later work runs.
void clear_interrupt() noexcept;
// Returns kInterrupted after a request to stop. Costs two relaxed loads.
Status check_interrupt();

// While the object exists, check_interrupt() of this thread also obeys `signal`, which is 0 or the
// number of a signal. ThreadPool does the same in threads that work for this one. nullptr: none.
class InterruptScope {
 public:
  explicit InterruptScope(const std::atomic<int>* signal);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static const std::atomic<int>* current();  // of this thread

 private:
  const std::atomic<int>* outer_;
};

}  // namespace ferry
