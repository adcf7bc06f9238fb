#include "runner/tokenizer/unicode.h"

#include <utf8proc.h>

namespace ferry::unicode {
namespace {

// Length of the valid sequence at bytes[at], or minus the length of the beginning of one.
int sequence_length(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return -1;
  // The range of the second byte excludes overlong forms, surrogates and what is beyond U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return -1;
  const int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (int i = 2; i < size; ++i) {
    if ((byte(static_cast<size_t>(i)) & 0xC0) != 0x80) return -i;
  }
  return size;
}

}  // namespace

Char decode_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return decode(text, at);
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

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
  // Join_Control, and the symbols that Other_Alphabetic counts as alphabetic.
  const bool symbol = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || symbol;
}

std::string make_valid(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const int length = sequence_length(bytes, at);
    const auto size = static_cast<size_t>(length < 0 ? -length : length);
    text += length < 0 ? std::string_view("\xEF\xBF\xBD") : bytes.substr(at, size);
    at += size;
  }
  return text;
}

}  // namespace ferry::unicode
