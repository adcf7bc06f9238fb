// Engine: the threads that work is done with; and how work reports progress and is stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace ferry {
inline namespace v0 {

// A handle: copies share the threads. An engine does one thing at a time; calls from several
// threads wait for each other. A callback must not use the engine that calls it.
class Engine {
 public:
  // `threads` counts the calling thread; 0: as many as the process may use.
  explicit Engine(size_t threads = 0);
  ~Engine();
  Engine(const Engine&);
  Engine& operator=(const Engine&);

  size_t threads() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Is told how far work is: what is being done ("writing"), and how much of it. Any thread of the
// engine may call it, one at a time. Work stops with ErrorCode::kInterrupted, and cleans up, if it
// returns false.
using OnProgress = std::function<bool(std::string_view what, uint64_t done, uint64_t total)>;

// Asks everything that runs in this process to stop with ErrorCode::kInterrupted. `signal` is the
// number of a signal, which messages name. May be called by a signal handler or by another thread.
// It holds, also for work that begins later, until clear_interrupt_request().
void interrupt_all(int signal) noexcept;
void clear_interrupt_request() noexcept;

// "0.2.0", or with the commit behind it, "0.2.0+1a2b3c4d5e6f".
std::string_view library_version();

}  // namespace v0
}  // namespace ferry
