// Quotes and splits command lines for a POSIX shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

// Quotes any text as one word, such as 'it'\''s'. Returns the text itself if it needs no quotes.
std::string shell_word(std::string_view text);
// Joins quoted words, such as "ferry convert 'a b' -o out".
std::string shell_line(const std::vector<std::string>& words);

// Splits a line at blanks outside of quotes. A backslash keeps the next character, except inside
// single quotes. Expands nothing. Returns kUsage if a quote does not end.
Result<std::vector<std::string>> shell_words(std::string_view line);

// Returns "./-path" for a path that begins with '-', so that a program does not take the path for
// an option.
std::string as_operand(const std::string& path);

}  // namespace ferry::batch
