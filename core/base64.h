// Base64 of RFC 4648.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

// The standard alphabet, with padding.
std::string to_base64(std::string_view bytes);
// The standard or the URL-safe alphabet, with padding. nullopt for other characters, white space
// too, for wrong padding, and where bits that encode nothing are not zero.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ferry
