// The frames are those of GraniteSpeechFeatureExtractor with its transform and logarithms in f64
// (tests/conformance/make_granite_speech_golden.py).
#include "media/paired_mel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/checkpoints.h"

namespace ferry::media::paired_mel_test {
namespace {

void expect_reference(const std::string& name, const PairedMelSettings& settings) {
  ThreadPool pool(2);
  const auto samples = TensorFile(fixture("sound/samples.safetensors")).floats_of(name);
  const std::vector<float> got = paired_mel(samples, settings, pool);
  const std::vector<float> want =
      TensorFile(fixture("sound/paired_mel.safetensors")).floats_of(name);
  ASSERT_EQ(std::ssize(got), settings.pairs(std::ssize(samples)) * settings.pair_values());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-6F * std::max(1.0F, std::fabs(want[i]))) << i;
  }
}

TEST(PairedMel, FramesAreThoseOfTheReference) { expect_reference("mono_16.wav", {}); }

TEST(PairedMel, OfOtherSettings) {
  expect_reference("stereo_flac.flac",
                   {.mel_bins = 20, .hop = 90, .window = 400, .inner_window = 300});
  expect_reference("float_32.wav",
                   {.mel_bins = 13, .hop = 200, .window = 256, .inner_window = 256});
}

TEST(PairedMel, PairsOfSamples) {
  const PairedMelSettings settings;
  EXPECT_EQ(settings.least_samples(), 257);
  EXPECT_EQ(settings.pairs(256), 0);
  EXPECT_EQ(settings.pairs(257), 1);
  EXPECT_EQ(settings.pairs(479), 1);
  EXPECT_EQ(settings.pairs(480), 2);
  const PairedMelSettings wide = {.hop = 1000};
  EXPECT_EQ(wide.pairs(999), 0);
  EXPECT_EQ(wide.pairs(1000), 1);
}

}  // namespace
}  // namespace ferry::media::paired_mel_test
