// Budget bounds the work that one rendering may still do. Templates are untrusted, and a few lines
// can demand unbounded work.
#pragma once

#include <cstddef>

#include "core/result.h"

namespace ferry::text::chat {

// Work is counted in units: one for each byte or element that is read or made, kStepCost for each
// node and for each element of a loop. The limit allows two million steps. A chat of a thousand
// messages takes about ten thousand.
inline constexpr size_t kMaxWork = size_t{256} << 20;
inline constexpr size_t kStepCost = 128;

// Return the cost of a search for `pattern` bytes in `text` bytes, and of stripping a set of
// `characters` bytes from the ends of `text` bytes.
constexpr size_t search_cost(size_t text, size_t pattern) { return text * (pattern / 16); }
constexpr size_t strip_cost(size_t text, size_t characters) { return text * characters; }

class Budget {
 public:
  Status spend(size_t cost) {
    if (cost > left_) return bad_input("the template takes too much work");
    left_ -= cost;
    return {};
  }

 private:
  size_t left_ = kMaxWork;
};

}  // namespace ferry::text::chat
