// A line on stderr that is drawn over itself while work goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/progress_text.h"

namespace ferry::cli {

// Work that is done within a second shows nothing. The line is cleared at the end, also of work
// that stops early. May be shown from several threads.
class ProgressBar {
 public:
  ProgressBar(std::string label, ProgressUnit unit);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  std::string label_;
  ProgressUnit unit_;
  Clock::time_point start_, next_;
  bool drawn_ = false;
};

}  // namespace ferry::cli
