// How long-running work reports its progress to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace ferry {

// Takes (done, total). May be empty. Calls do not overlap.
using ShowProgress = std::function<void(uint64_t, uint64_t)>;

// Adds up the progress of several threads.
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
