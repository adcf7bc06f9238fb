#include "converters/adapters/quantized/block_weight.h"

#include <array>
#include <cmath>
#include <vector>

namespace ferry::converters {
namespace {

constexpr std::array<float, 16> kF4Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                             4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                             -2.0F, -3.0F, -4.0F, -6.0F};
constexpr int kBias = 127;

class BlockDerivation final : public Derivation {
 public:
  explicit BlockDerivation(const BlockWeight& weight) : w_(weight) {}

  Status rows(const TensorSource& source, int64_t first, std::span<float> out) const override {
    const auto before = static_cast<uint64_t>(first * w_.columns);
    std::vector<std::byte> codes(out.size() / 2), scales(out.size() / kMxBlock);
    FERRY_RETURN_IF_ERROR(source.read(w_.blocks, before / 2, codes));
    FERRY_RETURN_IF_ERROR(source.read(w_.scales, before / kMxBlock, scales));
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto exponent = static_cast<int>(scales[2 * i / kMxBlock]) - kBias;
      const float scale = std::ldexp(1.0F, exponent);
      const auto pair = static_cast<size_t>(codes[i]);
      out[2 * i] = kF4Values[pair & 0xF] * scale;
      out[2 * i + 1] = kF4Values[pair >> 4] * scale;
    }
    return {};
  }

 private:
  BlockWeight w_;
};

}  // namespace

std::unique_ptr<Derivation> decode_blocks(const BlockWeight& weight) {
  return std::make_unique<BlockDerivation>(weight);
}

}  // namespace ferry::converters
