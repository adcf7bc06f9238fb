#include "runner/padded_sounds.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ferry::runner {
namespace {

// An encoder with 4 rows for a sound, one for every two frames of one value: the sum of all frames
// so far. Rows of no frames are -1.
struct Encoder {
  std::vector<size_t> calls = {};
  size_t aside = 0;

  EncodeFrames function() {
    return [this](std::span<const float> frames, bool apart) -> Result<std::vector<float>> {
      if (apart) {
        EXPECT_TRUE(calls.empty());
        ++aside;
      } else {
        calls.push_back(frames.size());
      }
      std::vector<float> rows(4, -1.0F);
      for (size_t row = 0; 2 * row < frames.size(); ++row) {
        const auto own = frames.first(std::min(2 * row + 2, frames.size()));
        rows[row] = std::accumulate(own.begin(), own.end(), 0.0F);
      }
      return rows;
    };
  }
};
const SoundSizes kCausal = {.mels = 1, .row_frames = 2, .padded_rows = 4, .is_causal = true};
const std::vector<float> kFrames = {1, 1, 1, 1, 1, 2, 2, 2, 2, 2};

TEST(PaddedSounds, RowsBehindASoundAreThoseOfNoFrames) {
  Encoder encoder;
  const auto rows =
      rows_of_sounds(kCausal, kFrames, std::vector<int64_t>{3, 5}, encoder.function());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, (std::vector<float>{2, 4, -1, -1, 4, 8, 10, -1}));
  EXPECT_EQ(encoder.calls, (std::vector<size_t>{5, 5}));
  EXPECT_EQ(encoder.aside, 1U);
}

TEST(PaddedSounds, SoundsWithoutPaddingAreEncodedAsTheyAre) {
  Encoder encoder;
  SoundSizes sizes = kCausal;
  sizes.is_causal = false;
  const auto rows = rows_of_sounds(sizes, kFrames, std::vector<int64_t>{5, 5}, encoder.function());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, (std::vector<float>{2, 4, 5, -1, 4, 8, 10, -1}));
  EXPECT_EQ(encoder.aside, 0U);
}

// Such a model hides the frames of padding, so that they change nothing.
TEST(PaddedSounds, SoundsOfWhichAModelHearsNoPaddingAreCut) {
  Encoder encoder;
  const SoundSizes sizes = {.mels = 1, .row_frames = 2};
  ASSERT_TRUE(rows_of_sounds(sizes, kFrames, std::vector<int64_t>{3, 4}, encoder.function()));
  EXPECT_EQ(encoder.calls, (std::vector<size_t>{3, 4}));
}

TEST(PaddedSounds, OthersAreRefused) {
  Encoder encoder;
  SoundSizes later = kCausal;
  later.is_causal = false;
  const auto code_of = [&](const SoundSizes& sizes, std::vector<int64_t> shown) {
    const auto rows = rows_of_sounds(sizes, kFrames, shown, encoder.function());
    EXPECT_FALSE(rows);
    return rows ? ErrorCode::kInternal : rows.error().code;
  };
  EXPECT_EQ(code_of(later, {3, 5}), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(kCausal, {0, 5}), ErrorCode::kUsage);
  EXPECT_EQ(code_of(kCausal, {6, 5}), ErrorCode::kUsage);
  EXPECT_EQ(code_of(kCausal, {1, 1, 1}), ErrorCode::kUsage);
  EXPECT_EQ(code_of(kCausal, {}), ErrorCode::kUsage);
}

}  // namespace
}  // namespace ferry::runner
