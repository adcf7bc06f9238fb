// ThreadPool runs independent items on a fixed set of threads. Results do not depend on the number
// of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ferry {

// Passed by reference to code that runs items in parallel. parallel_for may be called from one
// thread at a time; in a pool of one thread, which only calls, from several.
class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread; 1 starts no thread. If the system refuses that many
  // threads, there are fewer.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const;

  // Calls body(i) for every i in [0, count), each exactly once, and returns when all calls are
  // done. What body(i) computes must not depend on the thread that runs it. If a call throws, calls
  // that have not begun are left out, and the first exception is thrown here once no other call is
  // running.
  void parallel_for(size_t count, const std::function<void(size_t)>& body);

  // Returns the number of hardware threads that this process may use.
  static size_t hardware_threads();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
