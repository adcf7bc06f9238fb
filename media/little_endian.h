// Numbers of files whose low bytes come first (private to media/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::media {

// Returns the number of `size` bytes, at most 8, at an offset. The caller has checked that they are
// there.
inline uint64_t little_endian(std::span<const std::byte> bytes, uint64_t at, int size) {
  uint64_t value = 0;
  for (int i = size; i-- > 0;) {
    value = value << 8 | static_cast<uint64_t>(bytes[at + static_cast<uint64_t>(i)]);
  }
  return value;
}

}  // namespace ferry::media
