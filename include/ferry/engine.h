// Engine holds the threads that do the work. This header also declares how work reports progress
// and how it is stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace ferry {
inline namespace v0 {

// Handle of a thread pool. Copies share the threads. An engine does one thing at a time: calls from
// several threads wait for each other. A callback must not use the engine that calls it.
class Engine {
 public:
  // `threads` includes the calling thread. 0: as many threads as the process may use.
  explicit Engine(size_t threads = 0);
  ~Engine();
  Engine(const Engine&);
  Engine& operator=(const Engine&);

  size_t threads() const;

  // Like interrupt_all() and clear_interrupt_request(), but for the work of this engine alone.
  void interrupt(int signal) const noexcept;
  void clear_interrupt_request() const noexcept;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Receives progress: the name of the current work ("writing"), and how much of it is done. Any
// thread of the engine may make the call, one at a time. If the callback returns false, work cleans
// up and returns ErrorCode::kInterrupted.
using OnProgress = std::function<bool(std::string_view what, uint64_t done, uint64_t total)>;

// Asks all work in this process to stop with ErrorCode::kInterrupted. `signal` is the number of a
// signal, which messages name. A signal handler or another thread may call this function. The
// request also stops work that begins later, until clear_interrupt_request() is called.
void interrupt_all(int signal) noexcept;
void clear_interrupt_request() noexcept;

// Returns "0.2.0", or the version with the commit of the build, "0.2.0+1a2b3c4d5e6f".
std::string_view library_version();

}  // namespace v0
}  // namespace ferry
