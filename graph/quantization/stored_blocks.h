// Codes and scales that a checkpoint has already, taken as they are: blocks of GGUF, of 32 values
// of a row. The values that they stand for are those of the blocks, to the bit.
#pragma once

#include <cstddef>
#include <span>

namespace ferry::graph {

inline constexpr size_t kStoredBlockValues = 32;
inline constexpr size_t kQ8_0BlockBytes = 34;  // f16 scale, 32 i8 codes

// Whole blocks, one after the other. `codes` gets an i8 for each value, `scales` an f32 for each
// block. A scale may be 0, and of no normal f16; of a damaged file it may be negative or NaN.
void split_q8_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales);

}  // namespace ferry::graph
