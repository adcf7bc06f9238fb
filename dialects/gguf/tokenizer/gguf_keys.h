// GgufKeys: keys of a GGUF file and their values, in the order in which they were set first.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/gguf_key_value.h"

namespace ferry::text {

class GgufKeys {
 public:
  // Replaces the value of a key that is there, in its place. Empty texts and lists are left out, as
  // the converter does.
  void set(std::string_view key, GgufValue value) {
    if (is_empty(value)) return;
    const auto at = std::ranges::find(entries_, key, &GgufKeyValue::key);
    if (at == entries_.end()) {
      entries_.push_back({std::string(key), std::move(value)});
    } else {
      at->value = std::move(value);
    }
  }
  const std::vector<GgufKeyValue>& entries() const { return entries_; }
  std::vector<GgufKeyValue> take() && { return std::move(entries_); }

 private:
  static bool is_empty(const GgufValue& value) {
    return std::visit(
        [](const auto& held) {
          if constexpr (requires { held.empty(); }) {
            return held.empty();
          } else {
            return false;
          }
        },
        value);
  }

  std::vector<GgufKeyValue> entries_;
};

}  // namespace ferry::text
