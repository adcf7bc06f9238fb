// Base64 through OpenSSL, which the tests hold ours against.
#pragma once

#include <string>
#include <string_view>

namespace ferry::signing {

std::string encode(std::string_view bytes);
// The text must be valid and have no line ends.
std::string decode(std::string_view text);

}  // namespace ferry::signing
