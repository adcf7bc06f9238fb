// Encoders of the block types of GGUF: f32 values become the bytes that ggml's quantize_row_*_ref()
// makes, to the bit. Source: llama.cpp, ggml/src/ggml-quants.c. split_q8_0() takes the codes and
// scales of blocks that a checkpoint already has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace ferry::graph {

struct BlockEncoder {
  std::string_view name;  // as in BlockEncoding: "q8_0"
  uint32_t elements = 0;  // elements of a block
  uint32_t bytes = 0;     // bytes of a block
  // Encodes `values`, which has the elements of `blocks` blocks, into `out`, which has the size of
  // these blocks.
  void (*encode)(const float* values, size_t blocks, std::byte* out) = nullptr;
};

// Supports "q4_0", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k". Returns nullptr for other names.
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

void encode_q4_0(const float* values, size_t blocks, std::byte* out);
void encode_q8_0(const float* values, size_t blocks, std::byte* out);
void encode_q5_0(const float* values, size_t blocks, std::byte* out);
void encode_q5_1(const float* values, size_t blocks, std::byte* out);
void encode_q4_k(const float* values, size_t blocks, std::byte* out);
void encode_q5_k(const float* values, size_t blocks, std::byte* out);
void encode_q6_k(const float* values, size_t blocks, std::byte* out);

// Stores a scale or a minimum of a block.
inline void put_f16(void* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace ferry::graph
