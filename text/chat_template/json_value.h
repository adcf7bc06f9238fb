#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

// Strict JSON as a value; the members of objects stay in their order. `name` begins the messages.
Result<Value> parse_json_value(std::string_view json, const std::string& name);

}  // namespace ferry::text::chat
