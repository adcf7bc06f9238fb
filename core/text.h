// Text for people: untrusted names become safe to print, sizes become readable, and sizes that
// people write become numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

// Prints as 'name' in single quotes. Control characters, quotes, backslashes and bytes that are not
// printable ASCII or valid UTF-8 letters are escaped; the text is cut after about `max_bytes`. This
// is a type and not a function, so that argument-dependent lookup does not find std::quoted.
struct Quoted {
  std::string operator()(std::string_view untrusted, size_t max_bytes = 200) const;
};
inline constexpr Quoted quoted{};
// Applies the escapes of Quoted, without quotes and without a limit, for paths at the start of
// messages.
std::string printable(std::string_view untrusted);
// Removes the next line from `rest` and returns it without its end.
std::string_view take_line(std::string_view& rest);
// Returns the text without the blanks, tabs and carriage returns around it.
std::string_view trimmed(std::string_view text);
// Returns the last component of a path.
std::string base_name(std::string_view path);
// Makes the letters A to Z of the text small. Other characters stay.
std::string lower_case(std::string text);
// Returns a size in decimal units, such as "1.19 GB".
std::string human_bytes(uint64_t bytes);
// Matches the whole text; '*' and '?' are wildcards.
bool glob_match(std::string_view pattern, std::string_view text);

// Returns the least number of insertions, removals and replacements of characters that turn `b`
// into `a`. It is for short texts, because the time is the product of both lengths.
size_t edit_distance(std::string_view a, std::string_view b);

// Returns the decimal number between `prefix` and the end of `name`, such as the layer 3 of
// "hidden_states.3". nullopt for any other name.
std::optional<int64_t> number_after(std::string_view name, std::string_view prefix);

// Returns the bytes that lower-case hexadecimal digits spell; nullopt for anything else.
std::optional<std::string> from_hex(std::string_view text);

// Parses a number of bytes, in upper or lower case: "1500", "10K", "2.5 MB", "4GiB". K, M, G and T,
// with or without a B, are powers of 1000; KiB, MiB, GiB and TiB of 1024. nullopt for anything
// else, for less than 1 byte, and if the result is not a whole number.
std::optional<uint64_t> parse_size(std::string_view text);
// Says in a message what parse_size() accepts.
inline constexpr std::string_view kSizeSyntax =
    "whole bytes, such as 500MB or 2GiB: a number with K, M, G, T (powers of 1000; a B may "
    "follow), "
    "or KiB, MiB, GiB, TiB (of 1024), or nothing behind it";

}  // namespace ferry
