#include "core/progress.h"

#include <utility>

namespace ferry {
namespace {

BeginProgress& begin_function() {
  static BeginProgress begin;
  return begin;
}

std::atomic<bool> stage_is_shown = false;

}  // namespace

void show_progress_by(BeginProgress begin) { begin_function() = std::move(begin); }

ProgressStage::ProgressStage(const std::string& label, uint64_t total, ProgressUnit unit)
    : total_(total) {
  if (!begin_function() || stage_is_shown.exchange(true)) return;
  outermost_ = true;
  show_ = begin_function()(label, unit);
}

ProgressStage::~ProgressStage() {
  if (outermost_) stage_is_shown = false;
}

}  // namespace ferry
