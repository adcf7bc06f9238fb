// The values are those of Wav2Vec2FeatureExtractor (tests/conformance/make_speech_golden.py).
#include "media/waveform.h"

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::media::waveform_test {
namespace {

TEST(Waveform, NormalisedSamplesAreTheBitsOfNumpy) {
  const TensorFile samples(fixture("sound/samples.safetensors"));
  const TensorFile golden(fixture("sound/normalized.safetensors"));
  for (const char* name : {"five_32.wav", "mono_8.wav", "noise_flac.flac"}) {
    EXPECT_EQ(waveform(samples.floats_of(name), {}), golden.floats_of(name)) << name;
  }
}

TEST(Waveform, PlainSamplesStay) {
  const std::vector<float> samples = {0.5F, -1.0F, 0.25F};
  EXPECT_EQ(waveform(samples, {.normalize = false}), samples);
  EXPECT_TRUE(waveform({}, {}).empty());
}

TEST(Waveform, SilenceStaysSilence) {
  for (const float value : waveform(std::vector<float>(300, 0.0F), {})) ASSERT_EQ(value, 0.0F);
}

}  // namespace
}  // namespace ferry::media::waveform_test
