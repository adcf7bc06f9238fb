// Characters as the steps of a tokenizer see them. Texts are valid UTF-8 throughout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ferry::unicode {

struct Char {
  char32_t value;
  uint32_t size;  // bytes
};

// The character that begins at text[at].
inline Char decode(std::string_view text, size_t at) {
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

// The character that ends before text[end]; end > 0.
Char decode_before(std::string_view text, size_t end);
void append(std::string& text, char32_t c);

// The classes that the splitting rules tell apart. kOther is none of them.
enum Class : uint8_t {
  kOther = 0,
  kLetter = 1,   // L
  kMark = 2,     // M
  kNumber = 4,   // Nd, Nl, No
  kSpace = 8,    // White_Space
  kNewline = 16  // \r and \n, which are kSpace too
};
uint8_t class_of(char32_t c);

bool is_space(char32_t c);   // White_Space
bool is_number(char32_t c);  // Nd, Nl, No
bool is_word(char32_t c);    // Alphabetic, M, Nd, Pc, Join_Control

// Replaces what is not valid UTF-8: one U+FFFD for each maximal beginning of a sequence, as Unicode
// recommends.
std::string make_valid(std::string_view bytes);

}  // namespace ferry::unicode
