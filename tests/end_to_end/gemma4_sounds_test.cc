// Gemma 4 with sounds and images: prompts, every stage and the answers are those of transformers
// (tests/conformance/make_gemma4_sound_golden.py).
#include <gtest/gtest.h>

#include "tests/end_to_end/sound_checkpoints.h"

namespace ferry::gemma4_sounds_test {
namespace {

using namespace sound_checkpoints;

std::string gemma4() { return fixture("speech/gemma4"); }
std::string golden() { return gemma4() + "/golden.safetensors"; }

Json gemma4_answers() { return Json::parse(read_bytes(gemma4() + "/answers.json")); }

bool has_images(const Json& one) {
  return one.contains("image") || one.dump().find("\"image\"") != std::string::npos;
}

const Line kF32 = {"--dtype", "f32"};

TEST(Gemma4Sounds, AnswersAreThoseOfTheReference) {
  for (const Line& options :
       {Line{}, Line{"--shards", "2", "--prefill-length", "80"}, Line{"--inputs", "sounds"},
        Line{"--layout", "one-program", "--max-sound", "4", "--inputs", "sounds"},
        Line{"--layout", "one-program", "--max-sound", "2", "--image-size", "36x28"},
        Line{"--program", "static", "--context-length", "400"}}) {
    SCOPED_TRACE(options.empty() ? "plain" : options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, gemma4(), kF32 + options);
    const bool sees = options.empty() || (options.back() != "sounds" && options.back() != "36x28");
    for (const Json& one : gemma4_answers()) {
      if (!sees && has_images(one)) continue;
      SCOPED_TRACE(one.dump());
      const Outcome outcome =
          run_ferry(Line{"--json", "run", bundle, "--greedy"} + prompt_of(dir, one));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result["prompt_tokens"], one["ids"]);
      EXPECT_EQ(answered(result), one["tokens"]);
    }
  }
}

TEST(Gemma4Sounds, EveryStageIsProved) {
  for (const Line& options :
       {kF32, Line{"--dtype", "f16", "--shards", "3"}, Line{"--dtype", "bf16"},
        Line{"--dtype", "f32", "--layout", "one-program", "--inputs", "sounds", "--max-sound", "4"},
        Line{"--quantize", "8da8w"}, Line{"--component-dtype", "audio_encoder=f32"},
        Line{"--dtype", "f32", "--program", "static"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, gemma4(), options);
    const Json report = verified({bundle, "--checkpoint", gemma4(), "--reference", golden()});
    EXPECT_EQ(report["result"]["parity"], true);
  }
}

// A prompt of the reference has a picture and a sound.
TEST(Gemma4Sounds, ImagesStandBesideASound) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma4(), kF32);
  const std::string both = gemma4() + "/images.safetensors";
  const Json report = verified({bundle, "--checkpoint", gemma4(), "--reference", both});
  EXPECT_EQ(report["result"]["parity"], true);
  const Json bundle_alone = verified({bundle, "--reference", both});
  EXPECT_EQ(first_layers(bundle_alone, 2), (Line{"image_features", "audio_features"}));
}

TEST(Gemma4Sounds, StagesAreComparedInTheirOrder) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma4(), kF32);
  const Json report = verified({bundle, "--reference", golden()});
  EXPECT_EQ(first_layers(report, 4), (Line{"encoder_hidden_states.0", "encoder_hidden_states.1",
                                           "encoder_last_hidden_state", "audio_features"}));
}

TEST(Gemma4Sounds, AChangedStageIsFound) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma4(), kF32);
  expect_changed_stages_found(dir, gemma4(), bundle,
                              {"encoder_hidden_states.1", "audio_features", "logits"});
}

TEST(Gemma4Sounds, WithoutAReferenceAGeneratedImageAndSoundAreCompared) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma4(), kF32);
  const Json report = verified({bundle, "--checkpoint", gemma4()});
  EXPECT_EQ(report["result"]["parity"], true);
  for (const char* rows : {"audio_features", "image_features"}) {
    EXPECT_NE(report.dump().find(rows), std::string::npos) << rows;
  }
  EXPECT_EQ(verified({bundle, "--against", bundle})["result"]["parity"], true);
}

// Rows of a sound see what is before them, where rows of an image attend to each other. The prompt
// is shorter than an image.
TEST(Gemma4Sounds, SoundsAreCausalBesideImagesThatAreNot) {
  const TempDir dir, made;
  const std::string source =
      with_value(dir, gemma4(), "config.json",
                 Json::json_pointer("/text_config/use_bidirectional_attention"), "vision");
  const std::string bundle = converted(made, source, kF32);
  const Json report = verified({bundle, "--checkpoint", source, "--reference", golden()});
  EXPECT_EQ(report["result"]["parity"], true);
}

TEST(Gemma4Sounds, TheCheckpointAndTheOptionsSayWhichTowersAreBuilt) {
  const auto components = [](const Line& options) {
    const TempDir dir;
    Line roles;
    const Json manifest =
        Json::parse(read_bytes(converted(dir, gemma4(), options) + "/manifest.json"));
    for (const Json& component : manifest["components"]) roles.push_back(component["role"]);
    return roles;
  };
  const std::string text = "text_decoder", rows = "token_embedding", sees = "vision_encoder",
                    hears = "audio_encoder";
  EXPECT_EQ(components({}), (Line{sees, hears, rows, text}));
  EXPECT_EQ(components({"--inputs", "images,sounds"}), (Line{sees, hears, rows, text}));
  EXPECT_EQ(components({"--inputs", "images"}), (Line{sees, rows, text}));
  EXPECT_EQ(components({"--inputs", "sounds"}), (Line{hears, rows, text}));
  EXPECT_EQ(components({"--inputs", "text"}), (Line{text}));
  // Images have no size of their own there, and sounds need none.
  EXPECT_EQ(components({"--layout", "one-program", "--max-sound", "2"}), (Line{hears, rows, text}));
  const TempDir dir;
  expect_refused({"convert", fixture("vision/gemma4"), "-o", dir / "b", "--inputs", "sounds"}, 3,
                 "'audio_config' is missing");
  expect_refused({"convert", fixture("vision/gemma3"), "-o", dir / "b", "--inputs", "sounds"}, 4,
                 "--inputs sounds: Ferry builds no audio encoder of gemma3");
}

TEST(Gemma4Sounds, PreprocessWritesFramesAndTheirMask) {
  const TempDir dir;
  const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound_file("mono_16.wav"),
                                     "--checkpoint", gemma4(), "-o", dir / "frames.safetensors"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json tensors = outcome.json()["result"]["tensors"];
  EXPECT_EQ(tensors[0]["shape"], Json({1, 39, 16}));
  EXPECT_EQ(tensors[1]["name"], "input_features_mask");
  EXPECT_EQ(tensors[1]["shape"], Json({1, 39}));
}

TEST(Gemma4Sounds, LongSoundsAreCutAndShortOnesRefused) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma4(), kF32);
  const Outcome cut = run_ferry({"--json", "run", bundle, "--audio", sound_file("two_windows.wav"),
                                 "--chat", "a", "--greedy", "--max-new", "2"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  const Json ids = cut.json()["result"]["prompt_tokens"];
  EXPECT_EQ(std::count(ids.begin(), ids.end(), Json(6)), 750);
  EXPECT_NE((cut.out + cut.err).find("the first 30 of the 31.0 seconds of sound 1"),
            std::string::npos);
  const TempDir other;
  const std::string short_bundle = converted(other, gemma4(), kF32 + Line{"--max-sound", "1"});
  expect_refused({"run", short_bundle, "--audio", sound_file("two_windows.wav"), "--chat", "a"}, 2,
                 "the audio encoder takes 100");
}

TEST(Gemma4Sounds, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma4(), kF32 + Line{"--context-length", "100"});
  const std::string wav = sound_file("mono_16.wav");
  expect_refused({"run", bundle, "--audio", sound_file("two_windows.wav"), "--chat", "a"}, 2,
                 "becomes 750 rows, the context has 100 positions");
  expect_refused({"transcribe", bundle, wav}, 4, "has no request to write a sound down");
  expect_refused({"run", bundle, "--audio", wav, "--tokens", "1,2"}, 2, "--audio needs --prompt");
  write_bytes(dir / "chat.json", R"([{"role": "user", "content": [{"type": "audio"}]}])");
  expect_refused({"run", bundle, "--messages", dir / "chat.json"}, 3, "for 0 sounds");
  expect_refused({"convert", gemma4(), "-o", dir / "l", "--max-sound", "31"}, 2,
                 "cuts sounds to 30 seconds");
  expect_refused({"convert", gemma4(), "-o", dir / "o", "--layout", "one-program", "--inputs",
                  "sounds", "--prefill-length", "700"},
                 2, "the 750 rows of a sound of gemma4 are tokens of one call");
  expect_refused(
      {"convert", gemma4(), "-o", dir / "e", "--program", "encoder", "--inputs", "sounds"}, 4,
      "an encoder takes no sounds");
  const TempDir seeing, hearing;
  const std::string sees = converted(seeing, gemma4(), kF32 + Line{"--inputs", "images"});
  expect_refused({"run", sees, "--audio", wav, "--chat", "a"}, 2, "takes no sounds");
  const std::string hears = converted(hearing, gemma4(), kF32 + Line{"--inputs", "sounds"});
  expect_refused({"run", hears, "--image", picture("tiny.png"), "--chat", "a"}, 2,
                 "takes no images");
}

TEST(Gemma4Sounds, ConfigsThatAreNotObeyedAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, Json, int, const char*> cases[] = {
      {"/audio_config", 3, 3, "audio_config"},
      {"/audio_config/model_type", "gemma3n_audio", 4, "gemma4_audio is supported"},
      {"/audio_config/hidden_size", 15, 3, "num_attention_heads"},
      {"/audio_config/hidden_size", -8, 3, "hidden_size"},
      {"/audio_config/hidden_size", 1 << 30, 3, "hidden_size"},
      {"/audio_config/hidden_size", 1 << 24, 3, "too wide for chunks"},
      {"/audio_config/num_hidden_layers", 0, 3, "num_hidden_layers"},
      {"/audio_config/num_attention_heads", 3, 3, "num_attention_heads"},
      {"/audio_config/hidden_act", "mish", 4, "hidden_act"},
      {"/audio_config/subsampling_conv_channels", Json({16, 4, 4}), 3, "no list of two numbers"},
      {"/audio_config/subsampling_conv_channels", Json({3, 4}), 4, "no bins of frames"},
      {"/audio_config/subsampling_conv_channels", Json({1 << 20, 4}), 3, "subsampling"},
      {"/audio_config/conv_kernel_size", 1 << 20, 3, "conv_kernel_size"},
      {"/audio_config/attention_chunk_size", 0, 3, "attention_chunk_size"},
      {"/audio_config/attention_context_left", 1, 4, "a row does not attend to itself"},
      {"/audio_config/attention_context_right", -1, 3, "attention_context_right"},
      {"/audio_config/attention_logit_cap", 0.0, 3, "attention_logit_cap"},
      {"/audio_config/attention_invalid_logits_value", -100.0, 4, "attention_invalid_logits_value"},
      {"/audio_config/gradient_clipping", -1.0, 3, "gradient_clipping"},
      {"/audio_config/output_proj_dims", nullptr, 3, "output_proj_dims"},
      {"/audio_token_id", 272, 3, "audio_token_id"}};
  for (const auto& [key, value, code, message] : cases) {
    SCOPED_TRACE(key);
    const std::string folder =
        with_value(dir, gemma4(), "config.json", Json::json_pointer(key), value);
    expect_refused({"convert", folder, "-o", dir / "out", "--inputs", "sounds"}, code, message);
  }
}

TEST(Gemma4Sounds, ProcessorsThatMakeOtherPromptsAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, const char*, Json, int, const char*> cases[] = {
      {"processor_config.json", "/feature_extractor/feature_size", 20, 3,
       "makes frames of 20, the audio encoder takes those of 16"},
      {"processor_config.json", "/feature_extractor/feature_extractor_type",
       "WhisperFeatureExtractor", 3, "is not that of Gemma4Processor"},
      {"processor_config.json", "/feature_extractor/dither", 0.1, 4, "dither"},
      {"processor_config.json", "/feature_extractor/sampling_rate", 8000, 3, "sampling_rate"},
      {"processor_config.json", "/feature_extractor/frame_length_ms", 1e9, 3, "frame_length_ms"},
      {"processor_config.json", "/feature_extractor/hop_length_ms", 0.0, 4, "hop_length_ms"},
      {"processor_config.json", "/feature_extractor/mel_floor", 0.0, 3, "mel_floor"},
      {"processor_config.json", "/feature_extractor/per_bin_mean", Json({1.0, 2.0}), 3,
       "per_bin_mean"},
      {"processor_config.json", "/feature_extractor/max_frequency", 0.0, 3, "max_frequency"},
      {"tokenizer_config.json", "/audio_token", "<|video|>", 3, "audio_token_id is 6"},
      {"tokenizer_config.json", "/boa_token", "<nothing>", 3, "has no token"},
      {"tokenizer_config.json", "/eoa_token", nullptr, 3, "states no audio_token"}};
  for (const auto& [file, key, value, code, message] : cases) {
    SCOPED_TRACE(std::string(file) + key + value.dump());
    const std::string folder = with_value(dir, gemma4(), file, Json::json_pointer(key), value);
    const TempDir made;
    const std::string bundle = converted(made, folder, kF32 + Line{"--inputs", "sounds"});
    expect_refused({"run", bundle, "--audio", sound_file("mono_16.wav"), "--chat", "a"}, code,
                   message);
  }
}

}  // namespace
}  // namespace ferry::gemma4_sounds_test
