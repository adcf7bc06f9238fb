// How long-running work reports its progress to the caller, and the line of text that shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
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

enum class ProgressUnit { kBytes, kItems };

struct Progress {
  uint64_t done = 0;
  uint64_t total = 0;
  double seconds = 0;  // since the work began
  ProgressUnit unit = ProgressUnit::kBytes;
};

// Returns a line such as "writing [#####     ]  50 %  600 MB of 1.20 GB  300 MB/s  2 s left" of at
// most `columns` characters.
std::string progress_text(std::string_view label, const Progress& progress, size_t columns);

}  // namespace ferry
