// Requirements of fuzz targets beyond "it does not crash".
#pragma once

#include <algorithm>
#include <string>

#include "core/result.h"

namespace ferry {

inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

// The message of a refused input must be one line without control characters. The longest message
// names all model types.
inline void require_good_message(const Error& error) {
  const std::string& text = error.message;
  require(error.code == ErrorCode::kBadInput || error.code == ErrorCode::kUnsupported);
  require(!text.empty() && text.size() <= 1000);
  require(std::none_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }));
}

}  // namespace ferry
