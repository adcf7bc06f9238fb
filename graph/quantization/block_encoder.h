// Encoders of the block types of GGUF: f32 values become the bytes that ggml's quantize_chunk()
// makes, to the bit, with an importance matrix or without one. Source: llama.cpp,
// ggml/src/ggml-quants.c. split_q8_0() takes the codes and scales of blocks that a checkpoint
// already has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace ferry::graph {

// Whole rows of f32 values, one after the other.
struct BlockRows {
  const float* values = nullptr;
  size_t rows = 0, columns = 0;  // a row has whole blocks
  // How much an error counts in each column: the mean square of what the column is multiplied with.
  // Null: no importance matrix. All are finite, and none is negative.
  const float* importance = nullptr;
};

struct BlockEncoder {
  std::string_view name;         // as in BlockEncoding: "q8_0"
  uint32_t elements = 0;         // elements of a block
  uint32_t bytes = 0;            // bytes of a block
  uint32_t halves_at = 0;        // offset of the f16 numbers of a block: scale, minimum
  uint32_t halves = 1;           // how many these are
  bool takes_importance = true;  // whether an importance matrix changes the blocks
  // Encodes all rows into `out`, which has the size of their blocks.
  void (*encode)(const BlockRows& rows, std::byte* out) = nullptr;
};

// Supports "q2_k", "q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0", "iq4_nl"
// and "iq4_xs". Returns nullptr for other names.
const BlockEncoder* find_block_encoder(std::string_view name);

// Returns how many values no block can represent: those that are NaN or infinite, and all of a
// block whose f16 scale or minimum is infinite.
uint64_t count_unencodable(const BlockEncoder& encoder, const float* values, size_t blocks,
                           const std::byte* encoded);

inline constexpr size_t kStoredBlockValues = 32;
inline constexpr size_t kQ8_0BlockBytes = 34;  // f16 scale, 32 i8 codes

// Splits whole consecutive blocks. `codes` gets an i8 for each value, `scales` an f32 for each
// block. A scale may be 0 or a subnormal f16; in a damaged file it may be negative or NaN.
void split_q8_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales);

// -- the encoders, for find_block_encoder()

void encode_q2_k(const BlockRows& rows, std::byte* out);
void encode_q3_k(const BlockRows& rows, std::byte* out);
void encode_q4_0(const BlockRows& rows, std::byte* out);
void encode_q4_1(const BlockRows& rows, std::byte* out);
void encode_q4_k(const BlockRows& rows, std::byte* out);
void encode_q5_0(const BlockRows& rows, std::byte* out);
void encode_q5_1(const BlockRows& rows, std::byte* out);
void encode_q5_k(const BlockRows& rows, std::byte* out);
void encode_q6_k(const BlockRows& rows, std::byte* out);
void encode_q8_0(const BlockRows& rows, std::byte* out);
void encode_iq4_nl(const BlockRows& rows, std::byte* out);
void encode_iq4_xs(const BlockRows& rows, std::byte* out);

// The types of 32 values with an importance matrix, for the encoders above.
void search_q4_0(const BlockRows& rows, std::byte* out);
void search_q4_1(const BlockRows& rows, std::byte* out);
void search_q5_0(const BlockRows& rows, std::byte* out);
void search_q5_1(const BlockRows& rows, std::byte* out);

// Stores a scale or a minimum of a block.
inline void put_f16(void* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

inline float f16_at(const void* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return f16_to_f32(bits);
}

// Stores 32 codes of 4 bits in 16 bytes: code j in the low half of byte j, code j + 16 in the high
// half.
inline void put_nibbles32(const uint8_t* codes, uint8_t* to) {
  for (size_t j = 0; j < 16; ++j) {
    to[j] = static_cast<uint8_t>((codes[j] & 0xf) | codes[j + 16] << 4);
  }
}

// Stores 32 codes of 5 bits in 20 bytes: a word of the fifth bits, then nibbles.
inline void put_five_bits32(const uint8_t* codes, uint8_t* to) {
  uint32_t high = 0;
  for (size_t j = 0; j < 32; ++j) high |= (codes[j] >> 4 & 1U) << j;
  std::memcpy(to, &high, sizeof high);
  put_nibbles32(codes, to + 4);
}

}  // namespace ferry::graph
