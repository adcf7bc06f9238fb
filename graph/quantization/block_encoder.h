// Encoders of the block types of GGUF: f32 values to the bytes that ggml's quantize_row_*_ref()
// make of them, to the bit. Source: llama.cpp, ggml/src/ggml-quants.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ferry::graph {

struct BlockEncoder {
  std::string_view name;  // as in BlockEncoding: "q8_0"
  uint32_t elements = 0;  // of a block
  uint32_t bytes = 0;     // of a block
  // `values` has the elements of `blocks` blocks, `out` room for their bytes.
  void (*encode)(const float* values, size_t blocks, std::byte* out) = nullptr;
};

// "q4_0", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"; nullptr for other names.
const BlockEncoder* find_block_encoder(std::string_view name);

// How many values no block can stand for: those that are NaN or infinite, and all of a block whose
// f16 scale or minimum is infinite.
uint64_t count_unencodable(const BlockEncoder& encoder, const float* values, size_t blocks,
                           const std::byte* encoded);

// -- the encoders, for find_block_encoder()

void encode_q4_0(const float* values, size_t blocks, std::byte* out);
void encode_q8_0(const float* values, size_t blocks, std::byte* out);
void encode_q5_0(const float* values, size_t blocks, std::byte* out);
void encode_q5_1(const float* values, size_t blocks, std::byte* out);
void encode_q4_k(const float* values, size_t blocks, std::byte* out);
void encode_q5_k(const float* values, size_t blocks, std::byte* out);
void encode_q6_k(const float* values, size_t blocks, std::byte* out);

}  // namespace ferry::graph
