#include "text/unicode.h"

#include <utf8proc.h>

namespace ferry::text::unicode {
bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  if (c < 0x2000) return c == 0x85 || c == 0xA0 || c == 0x1680;
  return c <= 0x200A || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

uint8_t class_of(char32_t c) {
  if (c == '\r' || c == '\n') return kSpace | kNewline;
  if (is_space(c)) return kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    default:
      return kOther;
  }
}

bool is_number(char32_t c) { return class_of(c) == kNumber; }

bool is_word(char32_t c) {
  const uint8_t of = class_of(c);
  if (of == kLetter || of == kMark) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (of == kNumber) return category != UTF8PROC_CATEGORY_NO;
  // These are Join_Control, and the symbols that Other_Alphabetic counts as alphabetic.
  const bool symbol = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || symbol;
}

}  // namespace ferry::text::unicode
