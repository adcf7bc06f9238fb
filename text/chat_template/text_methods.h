// Methods of texts with the results of Python's str. Texts are valid UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

// The limit of the size of one text that a template makes.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;

enum class Side { kLeft = 1, kRight = 2, kBoth = 3 };

// Strips `characters` from the ends of `text`. Without `characters` it strips whitespace.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = std::nullopt);
// kBadInput if the result is larger than kMaxTextBytes.
Result<std::string> replace(std::string_view text, std::string_view from, std::string_view to,
                            int64_t count);
// Splits a text into texts of one character.
std::vector<std::string> characters_of(std::string_view text);
size_t count_characters(std::string_view text);
// Changing the case is kUnsupported for texts that are not ASCII.
enum class Case { kLower, kUpper, kTitle, kCapitalize };
Result<std::string> change_case(std::string_view text, Case to);

bool is_text_method(std::string_view name);
// Calls text.NAME(arguments). kUnsupported for a method that is not implemented.
Result<Value> call_text_method(const std::string& text, std::string_view name,
                               const std::vector<Value>& arguments);

}  // namespace ferry::text::chat
