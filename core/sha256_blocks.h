// The compression function of SHA-256 (FIPS 180-4, 6.2.2) by the instructions that processors have
// for it. Two computations at once take little longer than one, whose instructions wait for each
// other. Private to core/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ferry {

inline constexpr size_t kSha256BlockBytes = 64;
using Sha256State = std::array<uint32_t, 8>;

// Whether this processor has the instructions; without them the functions below must not be called.
bool has_sha256_blocks();
// `blocks` blocks from `data` on, which has no alignment.
void add_sha256_blocks(Sha256State& state, const std::byte* data, size_t blocks);
void add_sha256_blocks_of_two(Sha256State& a, const std::byte* data_a, Sha256State& b,
                              const std::byte* data_b, size_t blocks);

}  // namespace ferry
