// Character classes of Unicode for tokenizers and chat templates. core/utf8.h decodes UTF-8.
#pragma once

#include <cstdint>

namespace ferry::text::unicode {

// The classes that the splitting rules of tokenizers use. kOther stands for all other characters.
enum Class : uint8_t {
  kOther = 0,
  kLetter = 1,   // L
  kMark = 2,     // M
  kNumber = 4,   // Nd, Nl, No
  kSpace = 8,    // White_Space
  kNewline = 16  // \r and \n, which are also kSpace
};
uint8_t class_of(char32_t c);

bool is_space(char32_t c);   // White_Space
bool is_number(char32_t c);  // Nd, Nl, No
bool is_word(char32_t c);    // Alphabetic, M, Nd, Pc, Join_Control

}  // namespace ferry::text::unicode
