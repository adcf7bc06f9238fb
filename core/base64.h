// Base64 of RFC 4648.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

// Encodes with the standard alphabet and padding.
std::string to_base64(std::string_view bytes);
// Decodes the standard and the URL-safe alphabet, with padding. nullopt for other characters (white
// space included), wrong padding, and bits that are not zero though they encode nothing.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ferry
