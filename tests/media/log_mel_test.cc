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

constexpr const char* kType = R"("feature_extractor_type": "WhisperFeatureExtractor")";

TEST(LogMelSettings, ReadBothFiles) {
  const std::string outer = fmt::format(R"({{{}, "feature_size": 128}})", kType);
  const auto own = log_mel_settings(outer, "", "dir");
  ASSERT_TRUE(own.has_value()) << own.error().message;
  EXPECT_EQ(own->mel_bins, 128);
  EXPECT_EQ(own->chunk_frames(), 3000);
  const std::string nested = fmt::format(R"({{"feature_extractor": {{{}}}}})", kType);
  EXPECT_EQ(log_mel_settings(outer, nested, "dir")->mel_bins, 80);
}

TEST(LogMelSettings, RefuseByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("dither": 0.1)", "'dither' is not 0.0"},
      {R"("padding_side": "left")", "'padding_side' is not \"right\""},
      {R"("feature_size": 0)", "'feature_size' is not a whole number from 1 to 1024"},
      {R"("sampling_rate": 8000)", "'sampling_rate' is not a whole number from 16000 to 16000"},
      {R"("hop_length": 401)", "'hop_length' is not a whole number from 1 to 400"},
      {R"("hop_length": 4)", "'hop_length' makes more than 32768 frames"},
      {R"("n_fft": 4078)", "'n_fft' has a prime factor above 61"},
      {R"("n_fft": 401)", "'n_fft' is odd"}};
  for (const auto& [field, message] : cases) {
    const auto read = log_mel_settings(fmt::format("{{{}, {}}}", kType, field), "", "dir");
    ASSERT_FALSE(read.has_value()) << field;
    EXPECT_NE(read.error().message.find(message), std::string::npos) << read.error().message;
  }
  EXPECT_EQ(log_mel_settings("", "", "dir").error().code, ErrorCode::kIo);
  EXPECT_EQ(log_mel_settings(R"({"feature_extractor_type": "X"})", "", "dir").error().code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ferry::media::log_mel_test
