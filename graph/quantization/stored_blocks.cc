#include "graph/quantization/stored_blocks.h"

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace ferry::graph {
namespace {

void store_scale(const std::byte* block, std::byte* out) {
  uint16_t bits = 0;
  std::memcpy(&bits, block, sizeof(bits));
  const float scale = f16_to_f32(bits);
  std::memcpy(out, &scale, sizeof(scale));
}

// From codes j in the low and j + 16 in the high nibbles to neighbours.
void store_nibbles(const std::byte* stored, std::byte* out) {
  constexpr size_t kHalf = kStoredBlockValues / 2;
  const auto low = [&](size_t i) { return stored[i] & std::byte{15}; };
  const auto high = [&](size_t i) { return stored[i] >> 4; };
  for (size_t i = 0; i < kHalf; i += 2) {
    out[i / 2] = low(i) << 4 | low(i + 1);
    out[(kHalf + i) / 2] = high(i) << 4 | high(i + 1);
  }
}

}  // namespace

void split_q8_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales) {
  for (size_t b = 0; b < blocks.size() / kQ8_0BlockBytes; ++b) {
    const std::byte* block = blocks.data() + b * kQ8_0BlockBytes;
    store_scale(block, scales.data() + b * sizeof(float));
    std::memcpy(codes.data() + b * kStoredBlockValues, block + 2, kStoredBlockValues);
  }
}

void split_q4_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales) {
  for (size_t b = 0; b < blocks.size() / kQ4_0BlockBytes; ++b) {
    const std::byte* block = blocks.data() + b * kQ4_0BlockBytes;
    store_scale(block, scales.data() + b * sizeof(float));
    store_nibbles(block + 2, codes.data() + b * kStoredBlockValues / 2);
  }
}

}  // namespace ferry::graph
