// Text for people: untrusted names made safe to print, sizes made readable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ferry {

// 'name' in single quotes; control characters, quotes, backslashes and bytes that are not printable
// ASCII or valid UTF-8 letters are escaped; cut after about 200 bytes.
std::string quoted(std::string_view untrusted);
// The last component of a path.
std::string base_name(std::string_view path);
// "1.19 GB"; decimal units.
std::string human_bytes(uint64_t bytes);
// '*' and '?' match within the whole text.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace ferry
