// SHA-256 of up to 16 computations at once: each has one 32-bit lane of the vectors of AVX-512.
#include "core/sha256_blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw")
// GCC 12's own header causes this warning: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace ferry {
namespace {

using Vector = __m512i;

inline Vector add(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
inline Vector exclusive_or(Vector a, Vector b, Vector c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}
// The functions of FIPS 180-4, 4.1.2.
inline Vector choice(Vector e, Vector f, Vector g) {
  return _mm512_ternarylogic_epi32(e, f, g, 0xca);
}
inline Vector majority(Vector a, Vector b, Vector c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0xe8);
}
template <int kFirst, int kSecond, int kThird>
inline Vector rotations(Vector x) {
  return exclusive_or(_mm512_ror_epi32(x, kFirst), _mm512_ror_epi32(x, kSecond),
                      _mm512_ror_epi32(x, kThird));
}
template <int kFirst, int kSecond, int kShift>
inline Vector rotations_and_shift(Vector x) {
  return exclusive_or(_mm512_ror_epi32(x, kFirst), _mm512_ror_epi32(x, kSecond),
                      _mm512_srli_epi32(x, kShift));
}

// Moves word j of rows[i] to word i of rows[j].
inline __attribute__((always_inline)) void transpose(Vector (&rows)[16]) {
  Vector pairs[16], quads[16];
  for (size_t i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (size_t i = 0; i < 16; i += 4) {
    for (size_t k = 0; k < 2; ++k) {
      quads[i + 2 * k] = _mm512_unpacklo_epi64(pairs[i + k], pairs[i + 2 + k]);
      quads[i + 2 * k + 1] = _mm512_unpackhi_epi64(pairs[i + k], pairs[i + 2 + k]);
    }
  }
  for (size_t k = 0; k < 4; ++k) {
    const Vector even_low = _mm512_shuffle_i32x4(quads[k], quads[4 + k], 0x88);
    const Vector odd_low = _mm512_shuffle_i32x4(quads[k], quads[4 + k], 0xdd);
    const Vector even_high = _mm512_shuffle_i32x4(quads[8 + k], quads[12 + k], 0x88);
    const Vector odd_high = _mm512_shuffle_i32x4(quads[8 + k], quads[12 + k], 0xdd);
    rows[k] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[4 + k] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[8 + k] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[12 + k] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// Does round `round` of 64. The words of the state move by one each round, so word i, from a to h,
// is state[(i - round) % 8]. The next round waits for the new e, so the term that takes longest is
// added last.
inline __attribute__((always_inline)) void one_round(size_t round, Vector (&state)[8],
                                                     Vector (&message)[16]) {
  const auto word = [&](size_t i) -> Vector& { return state[(i + 64 - round) % 8]; };
  const Vector a = word(0), e = word(4), now = message[round % 16];
  const Vector constant = _mm512_set1_epi32(static_cast<int>(kSha256Constants[round]));
  Vector known = add(word(7), add(now, constant));
  known = add(known, choice(e, word(5), word(6)));
  // This keeps the compiler from summing in another order.
  asm("" : "+v"(known));
  Vector first = add(known, rotations<6, 11, 25>(e));
  asm("" : "+v"(first));
  word(3) = add(word(3), first);
  word(7) = add(first, add(rotations<2, 13, 22>(a), majority(a, word(1), word(2))));
  if (round >= 48) return;
  message[round % 16] = add(add(now, message[(round + 9) % 16]),
                            add(rotations_and_shift<7, 18, 3>(message[(round + 1) % 16]),
                                rotations_and_shift<17, 19, 10>(message[(round + 14) % 16])));
}

}  // namespace

void add_sha256_blocks_of_many(std::span<const Sha256Lane> lanes, size_t blocks) {
  // Unused lanes compute the same as the first lane.
  std::array<const std::byte*, kSha256Lanes> data;
  alignas(64) uint32_t words[8][kSha256Lanes];
  for (size_t lane = 0; lane < kSha256Lanes; ++lane) {
    const Sha256Lane& from = lanes[lane < lanes.size() ? lane : 0];
    data[lane] = from.data;
    for (size_t i = 0; i < 8; ++i) words[i][lane] = (*from.state)[i];
  }
  const Vector big_endian =
      _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
  Vector state[8];
  for (size_t i = 0; i < 8; ++i) state[i] = _mm512_load_si512(words[i]);
  for (size_t offset = 0; offset < blocks * kSha256BlockBytes; offset += kSha256BlockBytes) {
    Vector message[16], before[8];
    for (size_t i = 0; i < 16; ++i) message[i] = _mm512_loadu_si512(data[i] + offset);
    transpose(message);
    for (Vector& word : message) word = _mm512_shuffle_epi8(word, big_endian);
    for (size_t i = 0; i < 8; ++i) before[i] = state[i];
#pragma GCC unroll 64
    for (size_t round = 0; round < 64; ++round) one_round(round, state, message);
    for (size_t i = 0; i < 8; ++i) state[i] = add(state[i], before[i]);
  }
  for (size_t i = 0; i < 8; ++i) _mm512_store_si512(words[i], state[i]);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (size_t i = 0; i < 8; ++i) (*lanes[lane].state)[i] = words[i][lane];
  }
}

}  // namespace ferry

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace ferry {

bool has_sha256_lanes() {
  static const bool has = has_sha256_blocks() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw");
  return has;
}

}  // namespace ferry
#else
namespace ferry {

bool has_sha256_lanes() { return false; }
void add_sha256_blocks_of_many(std::span<const Sha256Lane>, size_t) {}

}  // namespace ferry
#endif
