// Hashes of short texts and pairs. The seed is random in each process, because untrusted files and
// texts must not be able to force collisions.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace ferry::text {

inline uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return seed;
}

// Multiplies 64 by 64 bits and mixes the two halves of the product.
inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline constexpr uint64_t kHashOdd1 = 0x9E3779B97F4A7C15, kHashOdd2 = 0xD6E8FEB86659FD93;

inline uint64_t hash_pair(uint32_t left, uint32_t right, uint64_t seed) {
  return hash_mix((uint64_t{left} << 32 | right) ^ seed, kHashOdd1 ^ seed >> 1);
}

inline uint64_t hash_text(std::string_view text, uint64_t seed) {
  const char* at = text.data();
  size_t left = text.size();
  uint64_t hash = seed ^ left * kHashOdd2;
  const auto load = [&](size_t size) {
    uint64_t word = 0;
    std::memcpy(&word, at, size);
    return word;
  };
  for (; left > 8; left -= 8, at += 8) hash = hash_mix(hash ^ load(8), kHashOdd1 ^ seed);
  uint64_t last = 0;
  if (left == 8) {
    last = load(8);
  } else if (left >= 4) {  // two overlapping halves: copies of a fixed size are single instructions
    uint32_t low = 0, high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + left - 4, 4);
    last = uint64_t{high} << 32 | low;
  } else if (left > 0) {
    const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(at[i])}; };
    last = byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
  }
  return hash_mix(hash ^ last, kHashOdd2 ^ seed);
}

struct TextHash {
  size_t operator()(std::string_view text) const { return hash_text(text, hash_seed()); }
};

}  // namespace ferry::text
