// The frames are those of ParakeetFeatureExtractor (tests/conformance/make_label_golden.py), which
// transforms in f32.
#include "media/normalized_mel.h"

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::media::normalized_mel_test {
namespace {

std::vector<float> frames_of(const std::string& name, const NormalizedMelSettings& settings) {
  ThreadPool pool(2);
  const TensorFile samples(fixture("sound/samples.safetensors"));
  return normalized_mel(samples.floats_of(name), settings, pool);
}

// The reference has one frame more, of zeros.
void expect_reference(const std::string& name, const NormalizedMelSettings& settings) {
  const std::vector<float> got = frames_of(name, settings);
  const std::vector<float> want =
      TensorFile(fixture("sound/normalized_mel.safetensors")).floats_of(name);
  ASSERT_EQ(got.size() + static_cast<size_t>(settings.mel_bins), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-4F) << i;
  for (size_t i = got.size(); i < want.size(); ++i) ASSERT_EQ(want[i], 0.0F);
}

TEST(NormalizedMel, FramesAreThoseOfTheReference) { expect_reference("mono_16.wav", {}); }

TEST(NormalizedMel, OfOtherSettings) {
  NormalizedMelSettings settings;
  settings.mel_bins = 40;
  settings.window = 400;
  settings.preemphasis = std::nullopt;
  expect_reference("stereo_flac.flac", settings);
}

// All frames of silence are one value, which is the mean.
TEST(NormalizedMel, SilenceIsZero) {
  ThreadPool pool(1);
  const std::vector<float> got = normalized_mel(std::vector<float>(4800, 0.0F), {}, pool);
  EXPECT_EQ(got, std::vector<float>(size_t{30} * 80, 0.0F));
}

TEST(NormalizedMel, EveryWholeHopIsAFrame) {
  const NormalizedMelSettings settings;
  EXPECT_EQ(settings.frames(319), 1);
  EXPECT_EQ(settings.frames(320), 2);
  EXPECT_EQ(settings.frames(16000), 100);
}

}  // namespace
}  // namespace ferry::media::normalized_mel_test
