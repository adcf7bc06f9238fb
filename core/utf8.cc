#include "core/utf8.h"

namespace ferry::utf8 {
namespace {

// Returns the length in bytes of the valid sequence at bytes[at], or minus the number of bytes that
// a valid sequence could begin with.
int sequence_length(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return -1;
  // The range of the second byte excludes overlong forms, surrogates and code points beyond
  // U+10FFFF.
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

Char decode(std::string_view text, size_t at) {
  return sequence_length(text, at) < 0 ? Char{0, 0} : decode_valid(text, at);
}

Char decode_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return decode_valid(text, at);
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

bool is_valid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int length = sequence_length(text, at);
    if (length < 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
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

}  // namespace ferry::utf8
