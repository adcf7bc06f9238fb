// Inputs of several texts. Each is ended by a NUL byte except the last.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace ferry {

// Removes the text before the next NUL byte, and the byte, and returns the text.
inline std::string cut(std::string_view& text) {
  const std::string part(text.substr(0, text.find('\0')));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

}  // namespace ferry
