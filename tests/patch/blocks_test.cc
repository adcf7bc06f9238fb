#include "patch/blocks.h"

#include <gtest/gtest.h>

#include <random>

namespace ferry::blocks_test {
namespace {

using Bytes = std::vector<std::byte>;
using patch::Op;
using patch::OpKind;

Bytes random_bytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Changes the lowest bytes of every `step`-th element.
Bytes changed(Bytes bytes, size_t width, size_t step) {
  std::mt19937 random(9);
  for (size_t i = step / 2; i < bytes.size() / width; i += step) {
    bytes[i * width] ^= static_cast<std::byte>(1 + random() % 255);
  }
  return bytes;
}

Op op_of(const patch::EncodedBlock& block, uint8_t width, size_t bytes) {
  return {block.kind, width, 0, bytes, 0, block.stored.size()};
}

TEST(PatchBlocks, EveryFormIsUndone) {
  for (const uint8_t width : std::initializer_list<uint8_t>{1, 2, 4, 8}) {
    for (const size_t step : {1U, 3U, 100U, 5000U, 70000U}) {
      SCOPED_TRACE(testing::Message() << int{width} << " " << step);
      const Bytes old = random_bytes(800'000, width);
      const Bytes made = changed(old, width, step);
      const auto block = patch::encode_block(made, old, width);
      EXPECT_EQ(block.kind == OpKind::kSparse, step > 1);
      Bytes out(made.size());
      ASSERT_TRUE(patch::decode_block(op_of(block, width, made.size()), block.stored, old, out));
      EXPECT_EQ(out, made);
    }
    const Bytes made = random_bytes(40'000, 5);
    const auto block = patch::encode_block(made, {}, width);
    EXPECT_EQ(block.kind, OpKind::kData);
    Bytes out(made.size());
    ASSERT_TRUE(patch::decode_block(op_of(block, width, made.size()), block.stored, {}, out));
    EXPECT_EQ(out, made);
  }
}

TEST(PatchBlocks, OnePercentOfTheElementsTakesLittle) {
  std::mt19937 random(1);
  for (const uint8_t width : std::initializer_list<uint8_t>{2, 4}) {
    Bytes made = random_bytes(4 << 20, 3);
    const Bytes old = made;
    for (size_t i = 0; i < made.size() / width; ++i) {
      if (random() % 100 != 0) continue;
      for (size_t k = 0; k < width; ++k) made[i * width + k] = static_cast<std::byte>(random());
    }
    const auto block = patch::encode_block(made, old, width);
    // Where no bit of a new value is known, 16 bits and their place are 1.5 % of 16 bits.
    EXPECT_LT(static_cast<double>(block.stored.size()),
              (width == 2 ? 0.0155 : 0.0130) * static_cast<double>(made.size()));
  }
}

TEST(PatchBlocks, DamageIsFoundOrGivesABlock) {
  const Bytes old = random_bytes(600, 1);
  for (const size_t step : {1U, 20U}) {
    for (const bool data : {false, true}) {
      const Bytes made = changed(old, 2, step);
      const auto block = patch::encode_block(made, data ? Bytes() : old, 2);
      const Op op = op_of(block, 2, made.size());
      Bytes out(made.size());
      const Bytes used = block.kind == OpKind::kData ? Bytes() : old;
      for (size_t size = 0; size < block.stored.size(); ++size) {
        EXPECT_FALSE(patch::decode_block(op, std::span(block.stored).first(size), used, out));
      }
      for (size_t bit = 0; bit < 8 * block.stored.size(); ++bit) {
        Bytes damaged = block.stored;
        damaged[bit / 8] ^= std::byte{1} << (bit % 8);
        (void)patch::decode_block(op, damaged, used, out);
      }
      Bytes longer = block.stored;
      longer.push_back(std::byte{0});
      EXPECT_FALSE(patch::decode_block(op, longer, used, out));
    }
  }
}

TEST(PatchBlocks, PositionsOutsideOfTheBlockAreRefused) {
  const Bytes old = random_bytes(100, 1), made = changed(old, 1, 90);
  const auto block = patch::encode_block(made, old, 1);
  ASSERT_EQ(block.kind, OpKind::kSparse);
  const Op shorter{OpKind::kSparse, 1, 0, 40, 0, block.stored.size()};
  Bytes out(40);
  EXPECT_FALSE(patch::decode_block(shorter, block.stored, std::span(old).first(40), out));
}

}  // namespace
}  // namespace ferry::blocks_test
