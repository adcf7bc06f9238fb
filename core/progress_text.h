// The line that shows how far a piece of work is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ferry {

enum class ProgressUnit { kBytes, kItems };

struct Progress {
  uint64_t done = 0;
  uint64_t total = 0;
  double seconds = 0;  // since it was begun
  ProgressUnit unit = ProgressUnit::kBytes;
};

// "writing [#####     ]  50 %  600 MB of 1.20 GB  300 MB/s  2 s left", in at most `columns`.
std::string progress_text(std::string_view label, const Progress& progress, size_t columns);

}  // namespace ferry
