// UTF-8, decoded and encoded in one place. `decode` is for bytes from outside; `decode_valid` is
// for text that is known to be valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ferry::utf8 {

struct Char {
  char32_t value;
  uint32_t size;  // bytes
};

// The character at text[at], `at` < text.size(). Not valid UTF-8 (cut short, overlong, a surrogate,
// beyond U+10FFFF): size 0.
Char decode(std::string_view text, size_t at);

// The same for valid text, without the checks.
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

// The character that ends before text[end]; the text is valid, and end > 0.
Char decode_before(std::string_view text, size_t end);

void append(std::string& text, char32_t c);

bool is_valid(std::string_view text);

// Replaces what is not valid: one U+FFFD for each maximal beginning of a sequence, as Unicode
// recommends.
std::string make_valid(std::string_view bytes);

}  // namespace ferry::utf8
