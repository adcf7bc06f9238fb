// Models that give labels of rows of a sound (CTC): every stage and the transcripts are those of
// transformers (tests/conformance/make_label_golden.py).
#include <gtest/gtest.h>

#include "tests/end_to_end/sound_checkpoints.h"

namespace ferry::speech_labels_test {
namespace {

using namespace sound_checkpoints;

std::string parakeet() { return fixture("speech/parakeet"); }
std::string golden() { return parakeet() + "/golden.safetensors"; }
std::string sound(const std::string& name) { return fixture("sound/" + name); }

std::string convert(const TempDir& dir, const Line& options) {
  return converted(dir, parakeet(), options);
}

// Sounds of four lengths go through one program.
TEST(SpeechLabels, TranscriptsAreThoseOfTheReference) {
  for (const Line& options : {Line{"--dtype", "f32"}, Line{"--dtype", "f32", "--shards", "2"},
                              Line{"--dtype", "f32", "--layout", "one-program"}}) {
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    for (const Json& one : Json::parse(read_bytes(parakeet() + "/transcripts.json"))) {
      SCOPED_TRACE(one.dump());
      const Outcome outcome = run_ferry({"--json", "transcribe", bundle, sound(one["sound"])});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result["tokens"], one["tokens"]);
      EXPECT_EQ(result["text"], one["text"]);
      EXPECT_EQ(result["windows"], 1);
    }
  }
}

TEST(SpeechLabels, EveryStageIsProved) {
  for (const Line& options :
       {Line{"--dtype", "f32"}, Line{"--dtype", "f16", "--shards", "2"}, Line{"--dtype", "bf16"},
        Line{"--dtype", "f32", "--layout", "one-program"}, Line{"--quantize", "8da8w"},
        Line{"--quantize", "8da4w"}, Line{"--dtype", "f32", "--max-sound", "1"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    const Json report = verified({bundle, "--checkpoint", parakeet(), "--reference", golden()});
    EXPECT_EQ(report["result"]["parity"], true);
  }
}

TEST(SpeechLabels, TheReferenceAloneIsCompared) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32", "--reference", golden()});
  const Json report = verified({bundle});
  EXPECT_NE(report.dump().find("token_logits"), std::string::npos);
  EXPECT_NE(report.dump().find("encoder_hidden_states.1"), std::string::npos);
}

TEST(SpeechLabels, AChangedStageIsFound) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  expect_changed_stages_found(dir, parakeet(), bundle, {"encoder_hidden_states.1", "token_logits"});
}

TEST(SpeechLabels, WithoutAReferenceGeneratedSoundIsCompared) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32", "--max-sound", "1"});
  EXPECT_EQ(verified({bundle, "--checkpoint", parakeet()})["result"]["parity"], true);
  EXPECT_EQ(verified({bundle, "--against", bundle})["result"]["parity"], true);
}

TEST(SpeechLabels, PreprocessWritesFramesAndTheirMask) {
  const TempDir dir;
  const std::string out = dir / "s.safetensors";
  const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound("mono_16.wav"),
                                     "--checkpoint", parakeet(), "-o", out});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json tensors = outcome.json()["result"]["tensors"];
  EXPECT_EQ(tensors[0]["shape"], Json({1, 41, 16}));
  EXPECT_EQ(tensors[1]["name"], "attention_mask");
  EXPECT_EQ(tensors[1]["shape"], Json({1, 41}));
  const std::string mask = TensorFile(out).bytes_of("attention_mask");
  EXPECT_EQ(mask, std::string(40, '\1') + std::string(1, '\0'));
}

TEST(SpeechLabels, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32", "--max-sound", "2"});
  const std::string wav = sound("mono_16.wav");
  expect_refused({"transcribe", bundle, sound("long.wav")}, 2,
                 "a sound of 270 frames, the audio encoder takes 1 to 200");
  for (const Line& option :
       {Line{"--language", "en"}, Line{"--task", "translate"}, Line{"--timestamps"}}) {
    expect_refused(Line{"transcribe", bundle, wav} + option, 2, option.front() + ": ");
  }
  expect_refused({"run", bundle, "--tokens", "1,2", "--greedy"}, 4, "takes sound");
  expect_refused({"embed", bundle, "--tokens", "1,2"}, 4, "takes sound");
  expect_refused({"convert", parakeet(), "-o", dir / "s", "--program", "static"}, 4,
                 "parakeet_ctc");
  expect_refused({"convert", parakeet(), "-o", dir / "c", "--context-length", "9"}, 2,
                 "the rows of a sound follow from max-sound");
  expect_refused({"convert", parakeet(), "-o", dir / "z", "--max-sound", "601"}, 2, "max-sound");
}

TEST(SpeechLabels, ConfigsThatAreNotObeyedAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, Json, int> cases[] = {
      {"/pad_token_id", nullptr, 3},
      {"/pad_token_id", 3, 4},
      {"/vocab_size", 0, 3},
      {"/encoder_config/model_type", "wav2vec2", 4},
      {"/encoder_config/num_key_value_heads", 1, 4},
      {"/encoder_config/conv_kernel_size", 4, 4},
      {"/encoder_config/subsampling_conv_kernel_size", 2, 4},
      {"/encoder_config/subsampling_factor", 1, 3},
      {"/encoder_config/num_mel_bins", 17, 4},
      {"/encoder_config/hidden_size", 23, 3},
      {"/encoder_config/hidden_act", "mish", 4}};
  for (const auto& [key, value, code] : cases) {
    SCOPED_TRACE(key);
    const std::string folder =
        with_value(dir, parakeet(), "config.json", Json::json_pointer(key), value);
    const std::string name = std::string(key).substr(std::string(key).rfind('/') + 1);
    expect_refused({"convert", folder, "-o", dir / "out"}, code,
                   name == "hidden_size" ? "num_attention_heads" : name.c_str());
  }
}

TEST(SpeechLabels, TokenizersThatMakeOtherTextAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, const char*, Json, int, const char*> cases[] = {
      {"tokenizer_config.json",
       "/clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", true, 4,
       "clean_up"},
      {"tokenizer_config.json", "/pad_token", nullptr, 3, "pad_token"},
      {"tokenizer_config.json", "/pad_token", "<gone>", 3, "pad_token"},
      {"processor_config.json", "/decoder_type", "tdt", 4, "decoder_type"},
      {"processor_config.json", "/blank_token", "<unk>", 4, "decoder_type"}};
  for (const auto& [file, key, value, code, message] : cases) {
    SCOPED_TRACE(std::string(file) + key + value.dump());
    const std::string folder = with_value(dir, parakeet(), file, Json::json_pointer(key), value);
    expect_refused({"convert", folder, "-o", dir / "out"}, code, message);
  }
}

TEST(SpeechLabels, ExtractorsThatMakeOtherFramesAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"feature_size", 20, "makes frames of 20, the audio encoder takes those of 16"},
      {"feature_extractor_type", "WhisperFeatureExtractor", "makes other input"}};
  for (const auto& [key, value, message] : cases) {
    const std::string folder =
        with_value(dir, parakeet(), "processor_config.json",
                   Json::json_pointer(std::string("/feature_extractor/") + key), value);
    const TempDir made;
    expect_refused({"transcribe", converted(made, folder, {"--dtype", "f32"}), sound("long.wav")},
                   3, message);
  }
}

}  // namespace
}  // namespace ferry::speech_labels_test
