// The line of text that shows the progress of a piece of work.
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
  double seconds = 0;  // since the work began
  ProgressUnit unit = ProgressUnit::kBytes;
};

// Returns a line such as "writing [#####     ]  50 %  600 MB of 1.20 GB  300 MB/s  2 s left" of at
// most `columns` characters.
std::string progress_text(std::string_view label, const Progress& progress, size_t columns);

}  // namespace ferry
