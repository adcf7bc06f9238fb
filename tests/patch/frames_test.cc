#include "patch/frames.h"

#include <gtest/gtest.h>

namespace ferry::frames_test {
namespace {

TEST(Frames, SeveralAreTakenOneByOne) {
  const std::vector<std::byte> first(1000, std::byte{7}), second = {std::byte{1}, std::byte{2}};
  std::vector<std::byte> stored;
  patch::append_frame(first, stored);
  EXPECT_LT(stored.size(), 50U);
  patch::append_frame(second, stored);
  std::span<const std::byte> rest = stored;
  for (const auto& expected : {first, second}) {
    const auto frame = patch::take_frame(rest);
    ASSERT_TRUE(frame);
    std::vector<std::byte> out(frame->bytes);
    ASSERT_TRUE(patch::decompress(*frame, out));
    EXPECT_EQ(out, expected);
  }
  EXPECT_FALSE(patch::take_frame(rest));
}

TEST(Frames, DamageIsFoundOrGivesOtherBytesOfTheSameSize) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<std::byte>(i % 7 * i));
  std::vector<std::byte> stored;
  patch::append_frame(bytes, stored);
  for (size_t size = 0; size < stored.size(); ++size) {
    std::span<const std::byte> rest = std::span(stored).first(size);
    EXPECT_FALSE(patch::take_frame(rest)) << size;
  }
  for (size_t bit = 0; bit < 8 * stored.size(); ++bit) {
    std::vector<std::byte> damaged = stored;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    std::span<const std::byte> rest = damaged;
    const auto frame = patch::take_frame(rest);
    if (!frame || frame->bytes > 100'000) continue;
    std::vector<std::byte> out(frame->bytes);
    (void)patch::decompress(*frame, out);
  }
}

TEST(Frames, AFrameWithoutASizeOrWithoutBytesIsNone) {
  std::vector<std::byte> empty;
  patch::append_frame({}, empty);
  std::span<const std::byte> rest = empty;
  EXPECT_FALSE(patch::take_frame(rest));
  const std::vector<std::byte> skippable = {std::byte{0x50}, std::byte{0x2a}, std::byte{0x4d},
                                            std::byte{0x18}, std::byte{1},    std::byte{0},
                                            std::byte{0},    std::byte{0},    std::byte{9}};
  rest = skippable;
  EXPECT_FALSE(patch::take_frame(rest));
}

}  // namespace
}  // namespace ferry::frames_test
