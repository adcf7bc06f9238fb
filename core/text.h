// Text for people: untrusted names made safe to print, sizes made readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

// 'name' in single quotes; control characters, quotes, backslashes and bytes that are not printable
// ASCII or valid UTF-8 letters are escaped; cut after about `max_bytes`. An object rather than a
// function, so that argument-dependent lookup does not find std::quoted instead.
struct Quoted {
  std::string operator()(std::string_view untrusted, size_t max_bytes = 200) const;
};
inline constexpr Quoted quoted{};
// The same escapes, without quotes and uncut: for paths at the start of messages.
std::string printable(std::string_view untrusted);
// The next line, without its end; `rest` goes on behind it.
std::string_view take_line(std::string_view& rest);
// The last component of a path.
std::string base_name(std::string_view path);
// "1.19 GB"; decimal units.
std::string human_bytes(uint64_t bytes);
// '*' and '?' match within the whole text.
bool glob_match(std::string_view pattern, std::string_view text);

// The least number of characters to insert, remove or replace that makes `a` of `b`; for texts of
// people, because it takes the product of both lengths.
size_t edit_distance(std::string_view a, std::string_view b);

// The layer 3 of "hidden_states.3": the decimal number between `prefix` and the end of `name`;
// nullopt for any other name.
std::optional<int64_t> number_after(std::string_view name, std::string_view prefix);

// The bytes that lower-case hexadecimal digits spell; nullopt for anything else.
std::optional<std::string> from_hex(std::string_view text);

}  // namespace ferry
