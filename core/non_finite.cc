#include "core/non_finite.h"

#include <algorithm>
#include <cstring>

namespace ferry {
namespace {

// Masks of the exponent bits.
constexpr uint16_t kF16Exponent = 0x7c00;
constexpr uint16_t kBF16Exponent = 0x7f80;
constexpr uint32_t kF32Exponent = 0x7f800000;
constexpr uint64_t kF64Exponent = 0x7ff0000000000000;

template <class Bits>
[[gnu::always_inline]] inline bool all_set(const std::byte* at, Bits exponent) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  return (bits & exponent) == exponent;
}

// Counts in blocks, because a sum as narrow as the values becomes vector code.
template <class Bits>
[[gnu::always_inline]] inline uint64_t count_in_blocks(std::span<const std::byte> values,
                                                       Bits exponent) {
  constexpr size_t kBlock = 4096;
  uint64_t total = 0;
  for (size_t left = values.size() / sizeof(Bits); left > 0;) {
    const size_t block = std::min(left, kBlock);
    Bits found = 0;
    for (size_t i = 0; i < block; ++i) {
      found = static_cast<Bits>(found + all_set(values.data() + i * sizeof(Bits), exponent));
    }
    total += found;
    left -= block;
    values = values.subspan(block * sizeof(Bits));
  }
  return total;
}

#if defined(__x86_64__)
template <class Bits>
[[gnu::target("avx2")]] uint64_t count_by_avx2(std::span<const std::byte> values, Bits exponent) {
  return count_in_blocks(values, exponent);
}
#endif

template <class Bits>
uint64_t count(std::span<const std::byte> values, Bits exponent) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return count_by_avx2(values, exponent);
#endif
  return count_in_blocks(values, exponent);
}

}  // namespace

uint64_t count_non_finite(DType dtype, std::span<const std::byte> values) {
  switch (dtype) {
    case DType::kF16:
      return count(values, kF16Exponent);
    case DType::kBF16:
      return count(values, kBF16Exponent);
    case DType::kF32:
      return count(values, kF32Exponent);
    case DType::kF64:
      return count(values, kF64Exponent);
    default:
      return 0;
  }
}

}  // namespace ferry
