// The byte-level alphabet of GPT-2 maps every byte to a printable character, so that a vocabulary
// of byte strings can be written as text. Printable Latin-1 characters map to themselves, other
// bytes to U+0100 and following.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace ferry::text::byte_level {

// Maps each byte to its character.
inline constexpr std::array<char32_t, 256> kCharOf = [] {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    chars[byte] = printable ? byte : next++;
  }
  return chars;
}();

// Returns the byte that `c` stands for, or nothing for characters outside of the alphabet.
constexpr std::optional<uint8_t> byte_of(char32_t c) {
  constexpr std::array<int16_t, 0x144> kByteOf = [] {
    std::array<int16_t, 0x144> bytes{};
    bytes.fill(-1);
    for (int16_t byte = 0; byte < 256; ++byte) bytes[kCharOf[static_cast<size_t>(byte)]] = byte;
    return bytes;
  }();
  if (c >= kByteOf.size() || kByteOf[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kByteOf[c]);
}

}  // namespace ferry::text::byte_level
