#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

// Parses strict JSON. The members of objects keep their order. `name` begins error messages.
Result<Value> parse_json_value(std::string_view json, const std::string& name);

}  // namespace ferry::text::chat
