// Budget: what one rendering may still cost. Templates are untrusted, and a few lines of one can
// ask for more work than any machine has.
#pragma once

#include <cstddef>

#include "core/result.h"

namespace ferry::text::chat {

// One for each byte or element that is read or made, kStepCost for each node and element of a loop.
// Two million steps; a chat of a thousand messages takes some ten thousands.
inline constexpr size_t kMaxWork = size_t{256} << 20;
inline constexpr size_t kStepCost = 128;

// Of looking for `pattern` bytes everywhere in `text` bytes, and of looking up every character at
// the ends of `text` in a set of `characters` bytes.
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
