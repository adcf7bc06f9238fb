// The samples are those of libsndfile, numpy's mean and torchaudio's resampler
// (tests/conformance/make_speech_golden.py).
#include "media/sound.h"

#include <gtest/gtest.h>

#include <cmath>

#include "media/sound_codecs.h"
#include "tests/cli/checkpoints.h"

namespace ferry::media::sound_test {
namespace {

constexpr int64_t kModelRate = 16000;

std::vector<std::byte> file_of(const std::string& name) {
  const std::string text = read_bytes(fixture("sound/" + name));
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void put(std::vector<std::byte>& file, size_t at, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) file[at + static_cast<size_t>(i)] = std::byte(value >> (8 * i));
}

class SoundFile : public testing::TestWithParam<const char*> {};

TEST_P(SoundFile, SamplesAreThoseOfTheReference) {
  ThreadPool pool(2);
  const auto sound = read_sound(fixture(std::string("sound/") + GetParam()));
  ASSERT_TRUE(sound.has_value()) << sound.error().message;
  const std::vector<float> got = at_rate(sound->samples, sound->rate, kModelRate, pool);
  const TensorFile golden(fixture("sound/samples.safetensors"));
  const std::vector<float> want = golden.floats_of(GetParam());
  ASSERT_EQ(got.size(), want.size());
  // Samples at the rate of the file are equal; the resampler of the reference computes in f32.
  const float bound = sound->rate == kModelRate ? 0.0F : 2e-6F;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << i;
}

INSTANTIATE_TEST_SUITE_P(All, SoundFile,
                         testing::Values("mono_16.wav", "stereo_24.wav", "mono_8.wav",
                                         "float_32.wav", "five_32.wav", "double_64.wav",
                                         "eleven_16.wav", "stereo_flac.flac", "noise_flac.flac"));

// A file that ends early is refused, wherever it ends.
TEST(Sound, EveryTruncationIsRefused) {
  for (const char* name : {"mono_8.wav", "noise_flac.flac"}) {
    const std::vector<std::byte> file = file_of(name);
    for (size_t size = 0; size < file.size(); ++size) {
      const auto sound = decode_sound(std::span(file).first(size), "f");
      ASSERT_FALSE(sound.has_value()) << name << " " << size;
    }
  }
}

// The checksums of FLAC find every changed bit of a frame.
TEST(Sound, AChangedBitOfAFlacFrameIsFound) {
  std::vector<std::byte> file = file_of("noise_flac.flac");
  const size_t first = file.size() / 2;
  for (size_t at = first; at < first + 64; ++at) {
    file[at] ^= std::byte{4};
    EXPECT_FALSE(decode_sound(file, "f").has_value()) << at;
    file[at] ^= std::byte{4};
  }
}

struct Damage {
  const char* name;
  size_t at;
  uint64_t value;
  int size;
  const char* message;
};

class DamagedWav : public testing::TestWithParam<Damage> {};

TEST_P(DamagedWav, IsRefusedByName) {
  const Damage& damage = GetParam();
  std::vector<std::byte> file = file_of("mono_16.wav");
  put(file, damage.at, damage.value, damage.size);
  const auto sound = decode_sound(file, "f.wav");
  ASSERT_FALSE(sound.has_value());
  EXPECT_NE(sound.error().message.find(damage.message), std::string::npos) << sound.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedWav,
    testing::Values(Damage{"format", 20, 7, 2, "WAV of format 7 with 16 bits"},
                    Damage{"no_channels", 22, 0, 2, "for 0 channels of 16 bits"},
                    Damage{"rate", 24, 0, 4, "a sampling rate of 0 Hz"},
                    Damage{"fast", 24, 0xFFFFFFFF, 4, "a sampling rate of 4294967295 Hz"},
                    Damage{"frame", 32, 3, 2, "3 bytes for 1 channels of 16 bits"},
                    Damage{"bits", 34, 12, 2, "with 12 bits"},
                    Damage{"short_format", 16, 8, 4, "damaged WAV"},
                    Damage{"long_data", 40, 0x7FFFEFFF, 4, "the file ends early"},
                    Damage{"odd_data", 40, 12799, 4, "are not whole frames of 2"},
                    Damage{"no_data", 40, 0, 4, "has no samples"},
                    Damage{"no_riff", 0, 0, 4, "neither a WAV nor a FLAC file"}),
    [](const auto& one) { return std::string(one.param.name); });

// Programs that write to a pipe state a length that they do not know.
TEST(Sound, AStreamedWavEndsWithTheFile) {
  std::vector<std::byte> file = file_of("mono_16.wav");
  put(file, 40, 0xFFFFFFFF, 4);
  file.push_back(std::byte{1});
  const auto sound = decode_sound(file, "f");
  ASSERT_TRUE(sound.has_value()) << sound.error().message;
  EXPECT_EQ(sound->samples.size(), 6400u);
}

TEST(Sound, ASampleThatIsNotFiniteIsRefused) {
  std::vector<std::byte> file = file_of("float_32.wav");
  put(file, file.size() - 8, 0x7FC00000, 4);
  const auto sound = decode_sound(file, "f");
  ASSERT_FALSE(sound.has_value());
  EXPECT_NE(sound.error().message.find("is not finite"), std::string::npos);
}

TEST(Sound, MemoryAtTheRateOfModelsIsBounded) {
  EXPECT_TRUE(check_sound(48000, 1, kMostSamples, "f"));
  EXPECT_EQ(check_sound(48000, 1, kMostSamples + 1, "f").error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(check_sound(1000, 1, kMostSeconds * 1000, "f"));
  EXPECT_EQ(check_sound(1000, 1, kMostSeconds * 1000 + 1, "f").error().message,
            "f: 8388001 samples at 1000 Hz: at most 8388 seconds are supported");
}

TEST(Sound, ResamplingKeepsAConstant) {
  ThreadPool pool(1);
  const std::vector<float> ones(4410, 1.0F);
  const std::vector<float> got = at_rate(ones, 44100, kModelRate, pool);
  ASSERT_EQ(got.size(), 1600u);
  EXPECT_NEAR(got[800], 1.0F, 1e-3F);
}

}  // namespace
}  // namespace ferry::media::sound_test
