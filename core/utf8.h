// Decodes and encodes UTF-8. `decode` is for untrusted bytes; `decode_valid` is for text that is
// known to be valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ferry::utf8 {

struct Char {
  char32_t value;
  uint32_t size;  // length in bytes
};

// Returns the character at text[at]; `at` < text.size(). The size is 0 for invalid UTF-8 (cut
// short, overlong, a surrogate, or beyond U+10FFFF).
Char decode(std::string_view text, size_t at);

// Returns the character at text[at] of a valid text, without checks.
inline Char decode_valid(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// Returns the character that ends before text[end]. The text is valid, and end > 0.
Char decode_before(std::string_view text, size_t end);

void append(std::string& text, char32_t c);

bool is_valid(std::string_view text);

// Replaces each maximal beginning of an invalid sequence by one U+FFFD, as Unicode recommends.
std::string make_valid(std::string_view bytes);

}  // namespace ferry::utf8
