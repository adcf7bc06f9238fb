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

}  // namespace

void split_q8_0(std::span<const std::byte> blocks, std::span<std::byte> codes,
                std::span<std::byte> scales) {
  for (size_t b = 0; b < blocks.size() / kQ8_0BlockBytes; ++b) {
    const std::byte* block = blocks.data() + b * kQ8_0BlockBytes;
    store_scale(block, scales.data() + b * sizeof(float));
    std::memcpy(codes.data() + b * kStoredBlockValues, block + 2, kStoredBlockValues);
  }
}

}  // namespace ferry::graph
