// The table of encoders, and the encoders of 5 bits, which only few tensors have.
#include "graph/quantization/block_encoder.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>

#include "core/dtype.h"
#include "core/non_finite.h"

namespace ferry::graph {
namespace {

constexpr size_t kValues = 32;  // values of a block of 5 bits

constexpr std::array<BlockEncoder, 7> kEncoders = {{
    {"q4_0", 32, 18, encode_q4_0},
    {"q5_0", 32, 22, encode_q5_0},
    {"q5_1", 32, 24, encode_q5_1},
    {"q8_0", 32, 34, encode_q8_0},
    {"q4_k", 256, 144, encode_q4_k},
    {"q5_k", 256, 176, encode_q5_k},
    {"q6_k", 256, 210, encode_q6_k},
}};

// The positions of the f16 numbers of a block: at its beginning, but q6_k ends with one.
struct Halves {
  size_t offset, count;
};
Halves halves_of(const BlockEncoder& encoder) {
  if (encoder.name == "q6_k") return {208, 1};
  const bool has_minimum = encoder.name == "q5_1" || encoder.elements == 256;
  return {0, has_minimum ? 2u : 1u};
}

// Writes 32 codes of 5 bits: a word of the fifth bits, then nibbles. Code j is the low nibble, j +
// 16 the high one.
void put_five_bits(const std::array<uint32_t, kValues>& codes, std::byte* to) {
  uint32_t high = 0;
  for (size_t j = 0; j < kValues; ++j) high |= codes[j] >> 4 << j;
  std::memcpy(to, &high, sizeof high);
  for (size_t j = 0; j < 16; ++j) {
    to[4 + j] = static_cast<std::byte>((codes[j] & 0xfu) | (codes[j + 16] & 0xfu) << 4);
  }
}

// Converts to an integer and drops the fraction. Returns 0 for values that no code represents.
uint32_t truncated(float value) {
  return value >= 0 && value < 256 ? static_cast<uint32_t>(value) : 0;
}

void store_scale(const std::byte* block, std::byte* out) {
  uint16_t bits = 0;
  std::memcpy(&bits, block, sizeof(bits));
  const float scale = f16_to_f32(bits);
  std::memcpy(out, &scale, sizeof(scale));
}

}  // namespace

const BlockEncoder* find_block_encoder(std::string_view name) {
  const auto* found = std::ranges::find(kEncoders, name, &BlockEncoder::name);
  return found == kEncoders.end() ? nullptr : found;
}

uint64_t count_unencodable(const BlockEncoder& encoder, const float* values, size_t blocks,
                           const std::byte* encoded) {
  const Halves halves = halves_of(encoder);
  uint64_t count =
      count_non_finite(DType::kF32, std::as_bytes(std::span(values, blocks * encoder.elements)));
  for (size_t b = 0; b < blocks; ++b) {
    const std::span half(encoded + b * encoder.bytes + halves.offset, 2 * halves.count);
    if (count_non_finite(DType::kF16, half) == 0) continue;
    const auto block = std::as_bytes(std::span(values + b * encoder.elements, encoder.elements));
    count += encoder.elements - count_non_finite(DType::kF32, block);
  }
  return count;
}

void encode_q5_0(const float* values, size_t blocks, std::byte* out) {
  for (size_t b = 0; b < blocks; ++b, values += kValues, out += 22) {
    float largest = 0;  // by magnitude; the first of equals
    for (size_t j = 0; j < kValues; ++j) {
      if (std::abs(values[j]) > std::abs(largest)) largest = values[j];
    }
    const float d = largest / -16;
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    std::array<uint32_t, kValues> codes;
    for (size_t j = 0; j < kValues; ++j) {
      codes[j] = std::min(31u, truncated(values[j] * inverse + 16.5f));
    }
    put_f16(out, d);
    put_five_bits(codes, out + 2);
  }
}

void encode_q5_1(const float* values, size_t blocks, std::byte* out) {
  for (size_t b = 0; b < blocks; ++b, values += kValues, out += 24) {
    float low = FLT_MAX, high = -FLT_MAX;
    for (size_t j = 0; j < kValues; ++j) {
      low = std::min(low, values[j]);
      high = std::max(high, values[j]);
    }
    const float d = (high - low) / 31;
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    std::array<uint32_t, kValues> codes;
    for (size_t j = 0; j < kValues; ++j) {
      codes[j] = truncated((values[j] - low) * inverse + 0.5f);
    }
    put_f16(out, d);
    put_f16(out + 2, low);
    put_five_bits(codes, out + 4);
  }
}

void split_q8_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales) {
  for (size_t b = 0; b < blocks.size() / kQ8_0BlockBytes; ++b) {
    const std::byte* block = blocks.data() + b * kQ8_0BlockBytes;
    store_scale(block, scales.data() + b * sizeof(float));
    std::memcpy(codes.data() + b * kStoredBlockValues, block + 2, kStoredBlockValues);
  }
}

}  // namespace ferry::graph
