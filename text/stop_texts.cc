#include "text/stop_texts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ferry::text {
namespace {

// Returns how many bytes at the end of `text` begin `stop` without completing it.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string StopTexts::push(std::string_view part) {
  if (found_) return {};
  kept_ += part;
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = kept_.find(stop);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) {
      continue;
    }
    begin = at;
    end = at + stop.size();
    found_ = stop;
  }
  if (found_) {
    kept_.resize(begin);
    return std::exchange(kept_, {});
  }
  size_t kept = 0;
  for (const std::string& stop : stops_) kept = std::max(kept, begun(kept_, stop));
  std::string given = kept_.substr(0, kept_.size() - kept);
  kept_.erase(0, given.size());
  return given;
}

std::string StopTexts::finish() { return std::exchange(kept_, {}); }

}  // namespace ferry::text
