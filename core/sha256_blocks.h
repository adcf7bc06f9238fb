// The compression function of SHA-256 (FIPS 180-4, 6.2.2), with the processor's SHA instructions
// and with vectors. Private to core/.
//
// Relative throughput of one core (AMD Zen 5): one computation 1; two at once with SHA instructions
// 1.5, because the instructions of one wait for each other; 16 at once with AVX-512 2.6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry {

inline constexpr size_t kSha256BlockBytes = 64;
using Sha256State = std::array<uint32_t, 8>;

// Returns whether this processor has the SHA instructions. Without them the functions below must
// not be called.
bool has_sha256_blocks();
// Processes `blocks` blocks from `data` on. `data` may have any alignment.
void add_sha256_blocks(Sha256State& state, const std::byte* data, size_t blocks);
void add_sha256_blocks_of_two(Sha256State& a, const std::byte* data_a, Sha256State& b,
                              const std::byte* data_b, size_t blocks);

inline constexpr size_t kSha256Lanes = 16;
// The state of one of several computations, and the start of its next blocks.
struct Sha256Lane {
  Sha256State* state = nullptr;
  const std::byte* data = nullptr;
};
// Returns whether this processor has AVX-512 and the SHA instructions.
bool has_sha256_lanes();
// Processes `blocks` blocks of each of 1 to kSha256Lanes computations. The time does not depend on
// the number of computations.
void add_sha256_blocks_of_many(std::span<const Sha256Lane> lanes, size_t blocks);

// The round constants of FIPS 180-4, 4.2.2.
inline constexpr std::array<uint32_t, 64> kSha256Constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace ferry
