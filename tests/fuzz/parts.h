// Inputs of several texts, each ended by a NUL byte but for the last.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace ferry {

// What is before the next NUL byte, which goes too.
inline std::string cut(std::string_view& text) {
  const std::string part(text.substr(0, text.find('\0')));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

}  // namespace ferry
