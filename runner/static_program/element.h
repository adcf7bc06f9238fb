// Elements of tensors whose dtype is known at run time only, as bytes. Private to static_program/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ferry::runner {

// One element, as it is stored: the first `bytes` bytes of `bits`, little-endian.
struct Element {
  uint32_t bits = 0;
  size_t bytes = 4;  // 1, 2 or 4
};

inline size_t index(int64_t n) { return static_cast<size_t>(n); }

// Writes `count` copies of an element from `at` on, an element of the same size.
inline void fill(std::byte* at, size_t count, Element element) {
  if (element.bytes == 1) {
    std::memset(at, static_cast<int>(element.bits), count);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(at + i * element.bytes, &element.bits, element.bytes);
  }
}

}  // namespace ferry::runner
