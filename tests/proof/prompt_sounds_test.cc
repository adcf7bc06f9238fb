// Sounds of reference prompts: frames of several, of which a mask says what is padding.
#include "proof/prompt_sounds.h"

#include <gtest/gtest.h>

#include "core/program_interface.h"
#include "core/tensor_source.h"

namespace ferry::proof::prompt_sounds_test {
namespace {

// Sounds of up to 8 frames of 2 values become 3 rows of 4, of which two frames make one. Two
// frames are a row of the layers too, or each is one.
packer::Manifest model(bool causal = true) {
  packer::ManifestMethod forward;
  forward.name = kForwardMethod;
  forward.inputs = {{std::string(kInputFeaturesPort), DType::kF32, {1, 8, 2}}};
  forward.outputs = {{std::string(kAudioFeaturesPort), DType::kF32, {1, 3, 4}}};
  packer::ManifestProgram program;
  program.methods = {forward};
  packer::Manifest manifest;
  manifest.hidden_size = 4;
  manifest.vocab_size = 100;
  manifest.audio_token_id = 9;
  manifest.audio_row_frames = 2;
  manifest.audio_rows = 3;
  if (causal) manifest.audio_causal_frames = 1;
  manifest.components = {{std::string(kAudioEncoderRole), {program}},
                         {std::string(kTokenEmbeddingRole), {}}};
  return manifest;
}

Result<PromptImages> sounds(std::vector<int64_t> ids, int64_t count, int64_t frames,
                            const std::vector<uint8_t>& mask, const packer::Manifest& manifest) {
  MemorySource source("golden");
  source.add("input_ids", DType::kI64, {1, std::ssize(ids)}, ids);
  source.add("input_features", DType::kF32, {count, frames, 2},
             std::vector<float>(static_cast<size_t>(count * frames * 2), 1.0F));
  if (!mask.empty()) source.add("input_features_mask", DType::kBool, {count, frames}, mask);
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), manifest);
}

const std::vector<int64_t> kIds = {9, 9, 9, 1, 9, 9, 9};

TEST(PromptSounds, AMaskSaysWhichFramesArePadding) {
  const auto made = sounds(kIds, 2, 4, {1, 1, 1, 0, 1, 1, 1, 1}, model());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->shown_frames, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(made->row_count(), 6);
  EXPECT_EQ(frames_mask(*made), (std::vector<int64_t>{1, 1, 1, 0, 1, 1, 1, 1}));
  EXPECT_TRUE(sound_sizes(*made).is_causal);
  EXPECT_EQ(sound_sizes(*made).padded_rows, 3);
  const auto one = sounds({9, 9, 9}, 1, 4, {1, 1, 1, 1}, model());
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_TRUE(one->shown_frames.empty());
}

TEST(PromptSounds, RowsOfPaddingAreTakenOut) {
  const auto made = sounds(kIds, 2, 4, {1, 1, 1, 0, 1, 1, 1, 1}, model());
  ASSERT_TRUE(made) << made.error().message;
  std::vector<float> layer = {0, 1, 2, 3, 10, 11, 12, 13}, last = {0, 1, 10, 11};
  EXPECT_EQ(join_sounds(*made, "encoder_hidden_states.0", {1, 4, 1}, layer), (Shape{1, 7, 1}));
  EXPECT_EQ(layer, (std::vector<float>{0, 1, 2, 10, 11, 12, 13}));
  EXPECT_EQ(join_sounds(*made, "encoder_last_hidden_state", {1, 2, 1}, last), (Shape{1, 4, 1}));
}

TEST(PromptSounds, WhatDoesNotFitIsRefused) {
  const auto refused = [](const Result<PromptImages>& made, ErrorCode code,
                          const std::string& message) {
    ASSERT_FALSE(made) << message;
    EXPECT_EQ(made.error().code, code);
    EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  };
  const ErrorCode bad = ErrorCode::kBadInput;
  const std::vector<uint8_t> mask = {1, 1, 1, 0, 1, 1, 1, 1};
  refused(sounds(kIds, 2, 4, mask, model(false)), ErrorCode::kUnsupported,
          "sounds that are padded, which the model hears");
  refused(sounds(kIds, 2, 4, {}, model()), bad, "2 sounds without input_features_mask");
  refused(sounds(kIds, 2, 4, {1, 0, 1, 0, 1, 1, 1, 1}, model()), bad,
          "expected ones and then zeros for sound 1");
  refused(sounds(kIds, 2, 4, {1, 1, 1, 0, 0, 0, 0, 0}, model()), bad, "zeros for sound 2");
  refused(sounds(kIds, 2, 4, {1, 2, 1, 1, 1, 1, 1, 1}, model()), bad, "zeros for sound 1");
  refused(sounds(kIds, 2, 9, std::vector<uint8_t>(18, 1), model()), bad, "takes sounds of");
  refused(sounds({9, 9, 9}, 2, 4, mask, model()), bad, "3 placeholders (token 9)");
}

}  // namespace
}  // namespace ferry::proof::prompt_sounds_test
