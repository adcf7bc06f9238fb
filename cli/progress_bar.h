// What stderr shows of a stage of work.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/progress_text.h"

namespace ferry::cli {

struct ProgressStyle {
  bool line = false;   // one that is drawn over itself, from the first second on
  bool notes = false;  // how much it was and how long it took, at the end
};

// The line is cleared at the end, also of work that stops early. May be shown from several threads.
class ProgressBar {
 public:
  ProgressBar(std::string label, ProgressUnit unit, ProgressStyle style);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  std::string label_;
  ProgressUnit unit_;
  ProgressStyle style_;
  uint64_t done_ = 0;
  Clock::time_point start_, next_;
  bool drawn_ = false;
};

}  // namespace ferry::cli
