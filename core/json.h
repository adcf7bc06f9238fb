// Strict JSON for untrusted files: nesting is bounded, duplicate keys are refused, and integers are
// exact.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry {

inline constexpr int kMaxJsonDepth = 128;

// Parses one JSON document. Refuses duplicate keys in any object, nesting beyond kMaxJsonDepth,
// invalid UTF-8, anything after the document, NaN and Infinity. `name` begins the messages.
// Integers stay integers (unsigned or signed 64 bit); a number outside of that range becomes a
// float.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

}  // namespace ferry
