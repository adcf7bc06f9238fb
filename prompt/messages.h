// Checks the contents of the messages of a chat with images.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::prompt {

struct MessageContents {
  size_t first_string = 0;  // the first message, from 1, whose content is a string; 0 if none
};

// Checks the contents only. kBadInput for malformed content, kUnsupported, by name, for unknown
// types and fields. Items of type audio are known with `sounds`.
Result<MessageContents> check_contents(std::string_view chat, const std::string& where,
                                       bool sounds = false);

// For models without images: returns the first message, from 1, that has an item of content that is
// no text, or 0 if there is none. kBadInput for malformed JSON.
Result<size_t> message_beyond_text(std::string_view chat, const std::string& where);

}  // namespace ferry::prompt
