// Base64 by OpenSSL, for comparison with our implementation.
#pragma once

#include <string>
#include <string_view>

namespace ferry::signing {

std::string encode(std::string_view bytes);
// The text must be valid and have no line breaks.
std::string decode(std::string_view text);

}  // namespace ferry::signing
