#include "media/sound_settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ferry::media::sound_settings_test {
namespace {

constexpr const char* kType = R"("feature_extractor_type": "WhisperFeatureExtractor")";

TEST(SoundSettings, ReadBothFiles) {
  const std::string outer = fmt::format(R"({{{}, "feature_size": 128}})", kType);
  const auto read = sound_settings(outer, "", "dir");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  const auto* own = std::get_if<LogMelSettings>(&*read);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->mel_bins, 128);
  EXPECT_EQ(own->chunk_frames(), 3000);
  const std::string nested = fmt::format(R"({{"feature_extractor": {{{}}}}})", kType);
  EXPECT_EQ(std::get<LogMelSettings>(*sound_settings(outer, nested, "dir")).mel_bins, 80);
}

TEST(SoundSettings, RefuseByName) {
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
    const auto read = sound_settings(fmt::format("{{{}, {}}}", kType, field), "", "dir");
    ASSERT_FALSE(read.has_value()) << field;
    EXPECT_NE(read.error().message.find(message), std::string::npos) << read.error().message;
  }
  EXPECT_EQ(sound_settings("", "", "dir").error().code, ErrorCode::kIo);
  EXPECT_EQ(sound_settings(R"({"feature_extractor_type": "X"})", "", "dir").error().code,
            ErrorCode::kUnsupported);
}

TEST(SoundSettings, VoxtralTakesWholeSounds) {
  const auto read = [](const std::string& more) {
    return sound_settings(
        fmt::format(R"({{{}, "processor_class": "VoxtralProcessor"{}}})", kType, more), "", "dir");
  };
  EXPECT_TRUE(std::get<LogMelSettings>(*read("")).whole_sounds);
  const std::string nested = fmt::format(
      R"({{"processor_class": "VoxtralProcessor", "feature_extractor": {{{}}}}})", kType);
  EXPECT_TRUE(std::get<LogMelSettings>(*sound_settings("", nested, "dir")).whole_sounds);
  EXPECT_EQ(read(R"(, "chunk_length": 10)").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(read(R"(, "hop_length": 100)").error().code, ErrorCode::kUnsupported);
}

TEST(SoundSettings, OfSamples) {
  constexpr const char* kSamples = R"("feature_extractor_type": "Wav2Vec2FeatureExtractor")";
  const auto normalize = [&](const char* more) {
    const auto read = sound_settings(fmt::format("{{{}{}}}", kSamples, more), "", "dir");
    return std::get<WaveformSettings>(*read).normalize;
  };
  EXPECT_TRUE(normalize(""));
  EXPECT_FALSE(normalize(R"(, "do_normalize": false, "return_attention_mask": true)"));
  for (const auto& [field, message] :
       {std::pair(R"("do_normalize": 1)", "'do_normalize' is not true or false"),
        std::pair(R"("feature_size": 80)", "'feature_size' is not 1: not supported"),
        std::pair(R"("sampling_rate": 8000)", "'sampling_rate' is not a whole number")}) {
    const auto read = sound_settings(fmt::format("{{{}, {}}}", kSamples, field), "", "dir");
    ASSERT_FALSE(read.has_value()) << field;
    EXPECT_NE(read.error().message.find(message), std::string::npos) << read.error().message;
  }
}

TEST(SoundSettings, OfWholeSounds) {
  constexpr const char* kWhole = R"("feature_extractor_type": "ParakeetFeatureExtractor")";
  const auto read = [&](const std::string& more) {
    return sound_settings(fmt::format("{{{}{}}}", kWhole, more), "", "dir");
  };
  const auto usual = std::get<NormalizedMelSettings>(*read(""));
  EXPECT_EQ(usual.window, 512);
  EXPECT_EQ(usual.preemphasis, 0.97);
  EXPECT_EQ(std::get<NormalizedMelSettings>(*read(R"(, "preemphasis": null)")).preemphasis,
            std::nullopt);
  for (const auto& [field, message] :
       {std::pair(R"("preemphasis": "x")", "'preemphasis' is not a number"),
        std::pair(R"("preemphasis": 1e300)", "'preemphasis' is not a number from -1000 to 1000"),
        std::pair(R"("win_length": 513)", "'win_length' is not a whole number from 1 to 512"),
        std::pair(R"("n_fft": 256)", "'win_length' is 400, more than 'n_fft' 256"),
        std::pair(R"("n_fft": 511)", "'n_fft' is odd"),
        std::pair(R"("n_fft": 4078)", "'n_fft' has a prime factor above 61"),
        std::pair(R"("hop_length": 0)", "'hop_length' is not a whole number from 1 to 4096"),
        std::pair(R"("feature_size": 2000)", "'feature_size' is not a whole number"),
        std::pair(R"("sampling_rate": 8000)", "'sampling_rate' is not a whole number")}) {
    const auto refused = read(fmt::format(", {}", field));
    ASSERT_FALSE(refused.has_value()) << field;
    EXPECT_NE(refused.error().message.find(message), std::string::npos) << refused.error().message;
  }
}

// The reference reads none of the settings that it saves under melspec_kwargs.
TEST(SoundSettings, OfPairsOfFrames) {
  constexpr const char* kPaired = R"("feature_extractor_type": "GraniteSpeechFeatureExtractor")";
  const auto read = [&](const std::string& more) {
    return sound_settings("", fmt::format(R"({{"audio_processor": {{{}{}}}}})", kPaired, more),
                          "dir");
  };
  const auto usual = std::get<PairedMelSettings>(
      *read(R"(, "feature_size": 20, "melspec_kwargs": {"n_mels": 20, "n_fft": 256})"));
  EXPECT_EQ(usual.mel_bins, 80);
  EXPECT_EQ(usual.window, 512);
  const auto own =
      std::get<PairedMelSettings>(*read(R"(, "n_mels": 20, "projector_window_size": 6)"));
  EXPECT_EQ(own.pair_values(), 40);
  EXPECT_EQ(own.projector_window, 6);
  for (const auto& [field, message] :
       {std::pair(R"("n_mels": 0)", "'n_mels' is not a whole number from 1 to 1024"),
        std::pair(R"("n_fft": 256)", "'win_length' is 400, more than 'n_fft' 256"),
        std::pair(R"("n_fft": 511)", "'n_fft' is odd"),
        std::pair(R"("hop_length": 0)", "'hop_length' is not a whole number from 1 to 4096"),
        std::pair(R"("projector_downsample_rate": 0)", "'projector_downsample_rate' is not"),
        std::pair(R"("projector_window_size": 1e30)", "'projector_window_size' is not"),
        std::pair(R"("sampling_rate": 8000)", "'sampling_rate' is not a whole number")}) {
    const auto refused = read(fmt::format(", {}", field));
    ASSERT_FALSE(refused.has_value()) << field;
    EXPECT_NE(refused.error().message.find(message), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace ferry::media::sound_settings_test
