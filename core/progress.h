// How work says how far it is, to whoever asked for it.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace ferry {

// Takes (done, total); may be empty. One call at a time.
using ShowProgress = std::function<void(uint64_t, uint64_t)>;

// Adds up what several threads have done.
class SharedProgress {
 public:
  SharedProgress(ShowProgress show, uint64_t total) : show_(std::move(show)), total_(total) {}

  void advance(uint64_t done) {
    if (!show_) return;
    const std::lock_guard lock(mutex_);
    done_ += done;
    show_(done_, total_);
  }

 private:
  ShowProgress show_;
  uint64_t total_ = 0, done_ = 0;
  std::mutex mutex_;
};

}  // namespace ferry
