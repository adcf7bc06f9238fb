#include "core/interrupt.h"

#include <signal.h>

#include <atomic>
#include <utility>

namespace ferry {
namespace {

std::atomic<int> requested{0};
thread_local const std::atomic<int>* scope = nullptr;
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers must not wait");

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "a signal";
  }
}

}  // namespace

void request_interrupt(int signal) noexcept {
  int none = 0;
  requested.compare_exchange_strong(none, signal, std::memory_order_relaxed);
}

int interrupt_signal() noexcept { return requested.load(std::memory_order_relaxed); }

void clear_interrupt() noexcept { requested.store(0, std::memory_order_relaxed); }

Status check_interrupt() {
  int signal = interrupt_signal();
  if (signal == 0 && scope != nullptr) signal = scope->load(std::memory_order_relaxed);
  if (signal == 0) return {};
  return fail(ErrorCode::kInterrupted, std::string("stopped by ") + name_of(signal));
}

InterruptScope::InterruptScope(const std::atomic<int>* signal)
    : outer_(std::exchange(scope, signal)) {}
InterruptScope::~InterruptScope() { scope = outer_; }
const std::atomic<int>* InterruptScope::current() { return scope; }

}  // namespace ferry
