// The frames are those of the numpy path of WhisperFeatureExtractor
// (tests/conformance/make_speech_golden.py).
#include "media/log_mel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::media::log_mel_test {
namespace {

class LogMelBins : public testing::TestWithParam<int64_t> {};

TEST_P(LogMelBins, FramesAreThoseOfTheReference) {
  ThreadPool pool(2);
  LogMelSettings settings;
  settings.mel_bins = GetParam();
  settings.chunk_seconds = 1;
  const TensorFile samples(fixture("sound/samples.safetensors"));
  const std::vector<float> chunk = one_chunk(samples.floats_of("mono_16.wav"), settings);
  const Features got = log_mel(chunk, settings, pool);
  const TensorFile golden(fixture("sound/features.safetensors"));
  const std::vector<float> want = golden.floats_of(fmt::format("mel{}", GetParam()));
  EXPECT_EQ(got.frames, 100);
  ASSERT_EQ(got.values.size(), want.size());
  // Another library of transforms and logarithms may round the last bit of f32 otherwise.
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.values[i], want[i], 2.5e-7F) << i;
}

INSTANTIATE_TEST_SUITE_P(All, LogMelBins, testing::Values(80, 128));

TEST(LogMel, SilenceIsTheFloor) {
  ThreadPool pool(1);
  const LogMelSettings settings;
  const Features got = log_mel(std::vector<float>(480000, 0.0F), settings, pool);
  EXPECT_EQ(got.frames, 3000);
  EXPECT_FLOAT_EQ(got.values.front(), -1.5F);
  EXPECT_FLOAT_EQ(got.values.back(), -1.5F);
}

TEST(LogMel, AChunkIsPaddedOrCut) {
  LogMelSettings settings;
  settings.chunk_seconds = 1;
  EXPECT_EQ(one_chunk(std::vector<float>(3, 1.0F), settings).size(), 16000u);
  EXPECT_EQ(one_chunk(std::vector<float>(20000, 1.0F), settings).size(), 16000u);
}

// The loudest frame of all windows sets the floor of each.
TEST(LogMel, WindowsAreChunksOfTheWholeSound) {
  ThreadPool pool(2);
  LogMelSettings settings;
  settings.chunk_seconds = 1;
  settings.mel_bins = 8;
  std::vector<float> samples(20000, 0.0F);
  for (size_t i = 0; i < 9000; ++i) samples[i] = i % 7 == 0 ? 0.5F : -0.25F;
  std::vector<float> padded = samples;
  padded.resize(32000, 0.0F);
  const Features whole = log_mel(padded, settings, pool);
  const Features windows = all_windows(samples, settings, pool);
  EXPECT_EQ(windows.frames, 200);
  ASSERT_EQ(windows.values.size(), whole.values.size());
  for (size_t window = 0; window < 2; ++window) {
    for (size_t mel = 0; mel < 8; ++mel) {
      for (size_t frame = 0; frame < 100; ++frame) {
        EXPECT_EQ(windows.values[(window * 8 + mel) * 100 + frame],
                  whole.values[mel * 200 + window * 100 + frame]);
      }
    }
  }
  EXPECT_EQ(all_windows({}, settings, pool).frames, 100);
}

}  // namespace
}  // namespace ferry::media::log_mel_test
