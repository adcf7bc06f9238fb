#include "converters/quantized/weights.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr std::array<float, 16> kF4Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                             4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                             -2.0F, -3.0F, -4.0F, -6.0F};
constexpr int kBias = 127;
constexpr auto kNan = std::byte{255};
constexpr size_t kHalf = kMxBlock / 2;  // bytes of the elements, and elements of a half

// ggml has no negative zero; the reference has one.
void decode_mxfp4(const std::byte* block, float* out) {
  const float scale = std::ldexp(1.0F, static_cast<int>(block[0]) - kBias);
  for (size_t i = 0; i < kHalf; ++i) {
    const auto pair = static_cast<size_t>(block[1 + i]);
    out[i] = kF4Values[pair & 0xF] * scale;
    out[kHalf + i] = kF4Values[pair >> 4] * scale;
  }
}

constexpr BlockEncoding kMxfp4Blocks = {kMxfp4Name, kMxBlock, 1 + kHalf, decode_mxfp4};

// A byte holds the elements 2i and 2i + 1.
std::byte element(const std::byte* stored, size_t i) {
  return (i % 2 == 0 ? stored[i / 2] : stored[i / 2] >> 4) & std::byte{0xF};
}

class BlockDerivation final : public Derivation {
 public:
  explicit BlockDerivation(const BlockWeight& weight) : w_(weight) {}

  const BlockEncoding* encoding() const override { return &kMxfp4Blocks; }

  Status rows(const TensorSource& source, int64_t first, std::span<std::byte> out) const override {
    const auto begin = static_cast<uint64_t>(first * w_.columns / kMxBlock);
    const size_t blocks = out.size() / kMxfp4Blocks.bytes;
    std::vector<std::byte> elements(blocks * kHalf), scales(blocks);
    FERRY_RETURN_IF_ERROR(source.read(w_.blocks, begin * kHalf, elements));
    FERRY_RETURN_IF_ERROR(source.read(w_.scales, begin, scales));
    for (size_t i = 0; i < blocks; ++i) {
      if (scales[i] == kNan) return not_a_number(source, begin + i);
      std::byte* block = out.data() + i * kMxfp4Blocks.bytes;
      const std::byte* stored = elements.data() + i * kHalf;
      block[0] = scales[i];
      for (size_t k = 0; k < kHalf; ++k) {
        block[1 + k] = element(stored, k) | element(stored, kHalf + k) << 4;
      }
    }
    return {};
  }

 private:
  Status not_a_number(const TensorSource& source, uint64_t block) const {
    return bad_input(fmt::format("{}: {}: scale {} is 255, which is no number",
                                 printable(source.path()), quoted(source.entries()[w_.scales].name),
                                 block));
  }

  BlockWeight w_;
};

}  // namespace

std::unique_ptr<Derivation> decode_blocks(const BlockWeight& weight) {
  return std::make_unique<BlockDerivation>(weight);
}

}  // namespace ferry::converters
