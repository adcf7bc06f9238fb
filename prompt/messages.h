// Checks the contents of the messages of a chat with images.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::prompt {

struct MessageContents {
  size_t first_string = 0;  // the first message, from 1, whose content is a string; 0 if none
  bool has_video = false;
};

// The types of content beside text and images that are known.
struct KnownContents {
  bool sounds = false, videos = false;
};

// Checks the contents only. kBadInput for malformed content, kUnsupported, by name, for unknown
// types and fields.
Result<MessageContents> check_contents(std::string_view chat, const std::string& where,
                                       KnownContents known = {});

// For models without images: returns the first message, from 1, that has an item of content that is
// no text, or 0 if there is none. kBadInput for malformed JSON.
Result<size_t> message_beyond_text(std::string_view chat, const std::string& where);

}  // namespace ferry::prompt
