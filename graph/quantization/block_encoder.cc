// The table of encoders, and the encoders that search nothing and are rarely used.
#include "graph/quantization/block_encoder.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>

#include "core/dtype.h"

namespace ferry::graph {
namespace {

constexpr size_t kValues = 32;

constexpr std::array<BlockEncoder, 12> kEncoders = {{
    {.name = "q4_0", .elements = 32, .bytes = 18, .encode = encode_q4_0},
    {.name = "q4_1", .elements = 32, .bytes = 20, .halves = 2, .encode = encode_q4_1},
    {.name = "q5_0", .elements = 32, .bytes = 22, .encode = encode_q5_0},
    {.name = "q5_1", .elements = 32, .bytes = 24, .halves = 2, .encode = encode_q5_1},
    {.name = "q8_0", .elements = 32, .bytes = 34, .takes_importance = false, .encode = encode_q8_0},
    {.name = "q2_k",
     .elements = 256,
     .bytes = 84,
     .halves_at = 80,
     .halves = 2,
     .encode = encode_q2_k},
    {.name = "q3_k", .elements = 256, .bytes = 110, .halves_at = 108, .encode = encode_q3_k},
    {.name = "q4_k", .elements = 256, .bytes = 144, .halves = 2, .encode = encode_q4_k},
    {.name = "q5_k", .elements = 256, .bytes = 176, .halves = 2, .encode = encode_q5_k},
    {.name = "q6_k", .elements = 256, .bytes = 210, .halves_at = 208, .encode = encode_q6_k},
    {.name = "iq4_nl", .elements = 32, .bytes = 18, .encode = encode_iq4_nl},
    {.name = "iq4_xs", .elements = 256, .bytes = 136, .encode = encode_iq4_xs},
}};

// Converts to an integer and drops the fraction. Returns 0 for values that no code represents.
uint8_t truncated(float value, float top) {
  return value >= 0 && value < 256 ? static_cast<uint8_t>(std::min(value, top)) : 0;
}

uint8_t* bytes_of(std::byte* out) { return reinterpret_cast<uint8_t*>(out); }

// Codes of the values from the least one, in `top` steps up to the largest. Stores the scale and
// the least value.
std::array<uint8_t, kValues> range_codes(const float* values, int top, uint8_t* halves) {
  float low = FLT_MAX, high = -FLT_MAX;
  for (size_t j = 0; j < kValues; ++j) {
    low = std::min(low, values[j]);
    high = std::max(high, values[j]);
  }
  const float d = (high - low) / static_cast<float>(top);
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  std::array<uint8_t, kValues> codes;
  for (size_t j = 0; j < kValues; ++j) {
    codes[j] = truncated((values[j] - low) * inverse + 0.5f, static_cast<float>(top));
  }
  put_f16(halves, d);
  put_f16(halves + 2, low);
  return codes;
}

}  // namespace

const BlockEncoder* find_block_encoder(std::string_view name) {
  const auto* found = std::ranges::find(kEncoders, name, &BlockEncoder::name);
  return found == kEncoders.end() ? nullptr : found;
}

uint64_t count_unencodable(const BlockEncoder& encoder, const float* values, size_t blocks,
                           const std::byte* encoded) {
  uint64_t count =
      count_non_finite(DType::kF32, std::as_bytes(std::span(values, blocks * encoder.elements)));
  for (size_t b = 0; b < blocks; ++b) {
    const std::span half(encoded + b * encoder.bytes + encoder.halves_at, 2 * encoder.halves);
    if (count_non_finite(DType::kF16, half) == 0) continue;
    const auto block = std::as_bytes(std::span(values + b * encoder.elements, encoder.elements));
    count += encoder.elements - count_non_finite(DType::kF32, block);
  }
  return count;
}

void encode_q4_1(const BlockRows& rows, std::byte* out) {
  if (rows.importance != nullptr) return search_q4_1(rows, out);
  uint8_t* to = bytes_of(out);
  const float* values = rows.values;
  for (size_t b = rows.rows * rows.columns / kValues; b > 0; --b, values += kValues, to += 20) {
    put_nibbles32(range_codes(values, 15, to).data(), to + 4);
  }
}

void encode_q5_0(const BlockRows& rows, std::byte* out) {
  if (rows.importance != nullptr) return search_q5_0(rows, out);
  uint8_t* to = bytes_of(out);
  const float* values = rows.values;
  for (size_t b = rows.rows * rows.columns / kValues; b > 0; --b, values += kValues, to += 22) {
    float largest = 0;  // by magnitude; the first of equals
    for (size_t j = 0; j < kValues; ++j) {
      if (std::abs(values[j]) > std::abs(largest)) largest = values[j];
    }
    const float d = largest / -16;
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    std::array<uint8_t, kValues> codes;
    for (size_t j = 0; j < kValues; ++j) codes[j] = truncated(values[j] * inverse + 16.5f, 31);
    put_f16(to, d);
    put_five_bits32(codes.data(), to + 2);
  }
}

void encode_q5_1(const BlockRows& rows, std::byte* out) {
  if (rows.importance != nullptr) return search_q5_1(rows, out);
  uint8_t* to = bytes_of(out);
  const float* values = rows.values;
  for (size_t b = rows.rows * rows.columns / kValues; b > 0; --b, values += kValues, to += 24) {
    put_five_bits32(range_codes(values, 31, to).data(), to + 4);
  }
}

void split_q8_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales) {
  for (size_t b = 0; b < blocks.size() / kQ8_0BlockBytes; ++b) {
    const std::byte* block = blocks.data() + b * kQ8_0BlockBytes;
    const float scale = f16_at(block);
    std::memcpy(scales.data() + b * sizeof scale, &scale, sizeof scale);
    std::memcpy(codes.data() + b * kStoredBlockValues, block + 2, kStoredBlockValues);
  }
}

}  // namespace ferry::graph
