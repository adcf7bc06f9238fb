// The contents of the messages of a chat with images.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::prompt {

struct MessageContents {
  size_t first_string = 0;  // the message, from 1, whose content is a string; 0: none
};

// Looks at the contents alone. kBadInput for what is no content, kUnsupported, by name, for types
// and fields that are not known.
Result<MessageContents> check_contents(std::string_view chat, const std::string& where);

// For models of text alone: the first message, from 1, that has an item of content that is no text;
// 0: none. kBadInput for what is no JSON.
Result<size_t> message_beyond_text(std::string_view chat, const std::string& where);

}  // namespace ferry::prompt
