#include "core/sha256_blocks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("sha,sse4.1"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("sha,sse4.1")
#endif

namespace ferry {
namespace {

// The instructions take words a, b, e, f of the state in one register and c, d, g, h in another.
struct Words {
  __m128i abef, cdgh;
};

inline __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline void store(void* to, __m128i v) { _mm_storeu_si128(static_cast<__m128i*>(to), v); }

inline Words words_of(const Sha256State& state) {
  const __m128i badc = _mm_shuffle_epi32(load(state.data()), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(load(state.data() + 4), 0x1b);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xf0)};
}

inline void store_words(const Words& words, Sha256State& state) {
  const __m128i feba = _mm_shuffle_epi32(words.abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(words.cdgh, 0xb1);
  store(state.data(), _mm_blend_epi16(feba, dchg, 0xf0));
  store(state.data() + 4, _mm_alignr_epi8(dchg, feba, 8));
}

// Does four of the 64 rounds, those of group `round` of 16, and replaces their message words by
// those of a later group.
inline __attribute__((always_inline)) void four_rounds(size_t round, __m128i (&message)[4],
                                                       Words& words) {
  __m128i& now = message[round % 4];
  const __m128i sum = _mm_add_epi32(now, load(kSha256Constants.data() + 4 * round));
  words.cdgh = _mm_sha256rnds2_epu32(words.cdgh, words.abef, sum);
  words.abef = _mm_sha256rnds2_epu32(words.abef, words.cdgh, _mm_shuffle_epi32(sum, 0x0e));
  if (round >= 12) return;
  const __m128i last = message[(round + 3) % 4];
  const __m128i seven_back = _mm_alignr_epi8(last, message[(round + 2) % 4], 4);
  now = _mm_add_epi32(_mm_sha256msg1_epu32(now, message[(round + 1) % 4]), seven_back);
  now = _mm_sha256msg2_epu32(now, last);
}

template <size_t kCount>
inline void add_blocks(Sha256State* const (&states)[kCount], const std::byte* (&data)[kCount],
                       size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  Words words[kCount];
  for (size_t n = 0; n < kCount; ++n) words[n] = words_of(*states[n]);
  for (; blocks > 0; --blocks) {
    Words before[kCount];
    __m128i message[kCount][4];
    for (size_t n = 0; n < kCount; ++n) {
      before[n] = words[n];
      for (size_t i = 0; i < 4; ++i) {
        message[n][i] = _mm_shuffle_epi8(load(data[n] + 16 * i), big_endian);
      }
      data[n] += kSha256BlockBytes;
    }
#pragma GCC unroll 16
    for (size_t round = 0; round < 16; ++round) {
#pragma GCC unroll 2
      for (size_t n = 0; n < kCount; ++n) four_rounds(round, message[n], words[n]);
    }
    for (size_t n = 0; n < kCount; ++n) {
      words[n].abef = _mm_add_epi32(words[n].abef, before[n].abef);
      words[n].cdgh = _mm_add_epi32(words[n].cdgh, before[n].cdgh);
    }
  }
  for (size_t n = 0; n < kCount; ++n) store_words(words[n], *states[n]);
}

}  // namespace

void add_sha256_blocks(Sha256State& state, const std::byte* data, size_t blocks) {
  const std::byte* from[] = {data};
  Sha256State* const states[] = {&state};
  add_blocks(states, from, blocks);
}

void add_sha256_blocks_of_two(Sha256State& a, const std::byte* data_a, Sha256State& b,
                              const std::byte* data_b, size_t blocks) {
  const std::byte* from[] = {data_a, data_b};
  Sha256State* const states[] = {&a, &b};
  add_blocks(states, from, blocks);
}

}  // namespace ferry

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace ferry {

bool has_sha256_blocks() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    // CPUID leaf 7, EBX bit 29 says that there are SHA instructions. __builtin_cpu_supports() of
    // GCC 12 cannot ask for them.
    const bool sha = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1) != 0;
    return sha && __builtin_cpu_supports("sse4.1");
  }();
  return has;
}

}  // namespace ferry
#else
namespace ferry {

bool has_sha256_blocks() { return false; }
void add_sha256_blocks(Sha256State&, const std::byte*, size_t) {}
void add_sha256_blocks_of_two(Sha256State&, const std::byte*, Sha256State&, const std::byte*,
                              size_t) {}

}  // namespace ferry
#endif
