// The frames are those of Gemma4AudioFeatureExtractor and Gemma3nAudioFeatureExtractor with their
// transforms in f64 (tests/conformance/make_gemma4_sound_golden.py, make_gemma3n_sound_golden.py).
#include "media/usm_mel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/checkpoints.h"

namespace ferry::media::usm_mel_test {
namespace {

// The reference has frames of padding too, of zeros.
void expect_usm_reference(const std::string& name, const UsmMelSettings& settings) {
  ThreadPool pool(2);
  const auto samples = TensorFile(fixture("sound/samples.safetensors")).floats_of(name);
  const std::vector<float> got = usm_mel(samples, settings, pool);
  const std::string file = settings.is_gemma3n ? "usm_mel_gemma3n" : "usm_mel";
  const std::vector<float> want =
      TensorFile(fixture("sound/" + file + ".safetensors")).floats_of(name);
  const auto count = std::ssize(samples);
  ASSERT_EQ(std::ssize(got), settings.frames(count) * settings.mel_bins);
  ASSERT_EQ(std::ssize(want), settings.padded_frames(count) * settings.mel_bins);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-6F * std::max(1.0F, std::fabs(want[i]))) << i;
  }
  for (size_t i = got.size(); i < want.size(); ++i) ASSERT_EQ(want[i], 0.0F);
}

TEST(UsmMel, FramesAreThoseOfTheReference) {
  UsmMelSettings settings;
  settings.mel_bins = 16;
  expect_usm_reference("mono_16.wav", settings);
}

TEST(UsmMel, OfOtherSettings) {
  UsmMelSettings settings;
  settings.mel_bins = 12;
  settings.frame = 512;
  settings.window = 1024;
  settings.hop = 200;
  settings.preemphasis = 0.97;
  settings.scale = 3.0;
  settings.floor = 1e-4;
  settings.least_hz = 125.0;
  settings.most_hz = 7600.0;
  for (int64_t i = 0; i < settings.mel_bins; ++i) {
    settings.means.push_back(0.25 * static_cast<double>(i));
    settings.deviations.push_back(1.0 + 0.5 * static_cast<double>(i));
  }
  expect_usm_reference("stereo_flac.flac", settings);
  settings.htk_preemphasis = false;
  expect_usm_reference("float_32.wav", settings);
}

TEST(UsmMel, FramesOfGemma3n) {
  UsmMelSettings settings = UsmMelSettings::gemma3n();
  settings.mel_bins = 16;
  expect_usm_reference("mono_16.wav", settings);
  settings.htk_preemphasis = false;
  expect_usm_reference("float_32.wav", settings);
  settings.mel_bins = 12;
  settings.frame = 320;
  settings.window = 512;
  settings.hop = 200;
  settings.preemphasis = 0.0;
  settings.scale = 3.0;
  settings.floor = 1e-3;
  settings.least_hz = 0.0;
  settings.most_hz = 8000.0;
  for (int64_t i = 0; i < settings.mel_bins; ++i) {
    settings.means.push_back(0.25 * static_cast<double>(i));
    settings.deviations.push_back(1.0 + 0.5 * static_cast<double>(i));
  }
  expect_usm_reference("stereo_flac.flac", settings);
}

TEST(UsmMel, FramesOfGemma3nReachIntoThePadding) {
  const UsmMelSettings settings = UsmMelSettings::gemma3n();
  EXPECT_EQ(settings.frames(512), 0);
  EXPECT_EQ(settings.least_samples(), 513);
  EXPECT_EQ(settings.frames(513), 1);
  EXPECT_EQ(settings.frames(768), 2);
  EXPECT_EQ(settings.frames(480000), 2997);
  EXPECT_EQ(settings.frames(900000), 2997);
}

TEST(UsmMel, AFrameHasItsSamplesInTheSound) {
  const UsmMelSettings settings;
  EXPECT_EQ(settings.frames(160), 0);
  EXPECT_EQ(settings.frames(161), 1);
  EXPECT_EQ(settings.frames(320), 1);
  EXPECT_EQ(settings.frames(321), 2);
  EXPECT_EQ(settings.frames(480000), 2999);
  EXPECT_EQ(settings.frames(900000), 2999);
  EXPECT_EQ(settings.padded_frames(161), 1);
  EXPECT_EQ(settings.padded_frames(257), 2);
}

}  // namespace
}  // namespace ferry::media::usm_mel_test
