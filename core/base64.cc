#include "core/base64.h"

#include <cstdint>

namespace ferry {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Returns the six bits that a character stands for, or -1.
int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  if (c == '/' || c == '_') return 63;
  return -1;
}

// Returns bytes [at, at + 3) as a big-endian number, with zeros behind the end.
uint32_t group_at(std::string_view bytes, size_t at) {
  uint32_t group = 0;
  for (size_t i = at; i < at + 3; ++i) {
    group = group << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
  }
  return group;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const uint32_t group = group_at(bytes, at);
    const size_t characters = bytes.size() - at >= 3 ? 4 : bytes.size() - at + 1;
    for (size_t i = 0; i < 4; ++i) {
      text += i < characters ? kAlphabet[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int pending = 0;  // the number of bits that have not become a byte yet
  for (const char c : text) {
    const int value = value_of(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFFFF;
    pending += 6;
    if (pending < 8) continue;
    pending -= 8;
    bytes += static_cast<char>(bits >> pending & 0xFF);
  }
  if ((bits & ((1U << pending) - 1)) != 0) return std::nullopt;
  return bytes;
}

}  // namespace ferry
