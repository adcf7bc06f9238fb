// How work says how far it is.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "core/progress_text.h"

namespace ferry::pipeline {

// Takes (done, total) bytes or tokens; may be empty. One call at a time.
using Progress = std::function<void(uint64_t, uint64_t)>;
// A Progress for work that is called `label` ("comparing weights"); may be empty.
using ProgressFor = std::function<Progress(const char* label, ProgressUnit unit)>;

// Adds up what several threads have done.
class SharedProgress {
 public:
  SharedProgress(Progress progress, uint64_t total)
      : progress_(std::move(progress)), total_(total) {}

  void advance(uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_(done_, total_);
  }

 private:
  Progress progress_;
  uint64_t total_ = 0, done_ = 0;
  std::mutex mutex_;
};

}  // namespace ferry::pipeline
