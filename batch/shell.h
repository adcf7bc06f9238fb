// Words for a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::batch {

// One word of a POSIX shell, whatever is in it: 'it'\''s'. As it is where nothing needs quotes.
std::string shell_word(std::string_view text);
// "ferry convert 'a b' -o out".
std::string shell_line(const std::vector<std::string>& words);

// The words of such a line: blanks part them, quotes and backslashes keep them together. Nothing is
// expanded. kUsage where a quote does not end.
Result<std::vector<std::string>> shell_words(std::string_view line);

// A path as an argument that is not taken for an option.
std::string as_operand(const std::string& path);

}  // namespace ferry::batch
