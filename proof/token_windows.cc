#include "proof/token_windows.h"

#include <algorithm>

namespace ferry::proof {

std::vector<TokenWindow> windows_of(std::span<const std::vector<int64_t>> sequences,
                                    const WindowOptions& options) {
  std::vector<TokenWindow> windows;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t tokens = std::ssize(sequences[i]);
    int64_t seen = 0;
    for (int64_t begin = 0; seen < tokens; begin += options.stride) {
      const int64_t end = std::min(begin + options.window, tokens);
      const int64_t counted = std::max(seen, begin + 1);
      if (counted < end) windows.push_back({i, begin, end, counted});
      seen = end;
    }
  }
  return windows;
}

}  // namespace ferry::proof
