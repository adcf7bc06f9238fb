#include "prompt/sound_input.h"

#include <gtest/gtest.h>

namespace ferry::prompt::sound_input_test {
namespace {

std::string refusal(size_t samples, const media::NormalizedMelSettings& settings) {
  ThreadPool pool(1);
  const auto made = whole_sound_frames(std::vector<float>(samples), settings, pool);
  return made ? "" : made.error().message;
}

TEST(SoundInput, FramesAreNeitherTooFewNorTooMany) {
  EXPECT_EQ(refusal(320, {}), "");
  EXPECT_EQ(refusal(319, {}),
            "a sound of 319 samples is too short: 320 samples are the least of which frames have a "
            "deviation");
  EXPECT_EQ(refusal(300'000, {.mel_bins = 1024, .hop = 1}),
            "a sound of 300000 samples makes 300000 frames of 1024, more than 268435456 values");
}

}  // namespace
}  // namespace ferry::prompt::sound_input_test
