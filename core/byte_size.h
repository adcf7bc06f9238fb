// Parses sizes that people write, such as "500MB".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

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
