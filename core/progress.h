// How far long work is. Like the request to stop (core/interrupt.h) this concerns the process as a
// whole: whoever shows it says so once, and stages of work tell it wherever they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/progress_text.h"

namespace ferry {

// Takes (done, total); may be called by several threads.
using ShowProgress = std::function<void(uint64_t, uint64_t)>;
// Begins to show a stage; may return an empty function.
using BeginProgress = std::function<ShowProgress(const std::string& label, ProgressUnit unit)>;

// Before any work begins; an empty function ends it. Nothing is shown without.
void show_progress_by(BeginProgress begin);

// A stage of work, from its construction to its destruction. Of stages within others only the
// outermost is shown.
class ProgressStage {
 public:
  ProgressStage(const std::string& label, uint64_t total, ProgressUnit unit = ProgressUnit::kBytes);
  ~ProgressStage();
  ProgressStage(const ProgressStage&) = delete;
  ProgressStage& operator=(const ProgressStage&) = delete;

  // Any thread may say what it has done.
  void add(uint64_t done) {
    const uint64_t sum = done_.fetch_add(done, std::memory_order_relaxed) + done;
    if (show_) show_(sum, total_);
  }

 private:
  uint64_t total_;
  std::atomic<uint64_t> done_ = 0;
  ShowProgress show_ = {};
  bool outermost_ = false;
};

}  // namespace ferry
