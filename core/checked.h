// Overflow-safe arithmetic for numbers that come from files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace ferry {

template <class T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <class T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Returns the product of `dims`, or nullopt on overflow and for a negative dimension. The product
// is formed from left to right, so that a zero does not hide an overflow before it.
[[nodiscard]] constexpr std::optional<int64_t> checked_numel(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  return n;
}

// Returns true if [offset, offset + size) lies inside [0, limit).
[[nodiscard]] constexpr bool range_inside(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

// Returns the next multiple of `alignment`, a power of two. The caller ensures that the sum does
// not overflow.
[[nodiscard]] constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace ferry
