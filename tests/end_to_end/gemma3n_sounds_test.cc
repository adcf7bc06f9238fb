// Gemma 3n with sounds: prompts, every stage and the answers are those of transformers
// (tests/conformance/make_gemma3n_sound_golden.py).
#include <gtest/gtest.h>

#include "tests/end_to_end/sound_checkpoints.h"

namespace ferry::gemma3n_sounds_test {
namespace {

using namespace sound_checkpoints;

std::string gemma3n() { return fixture("speech/gemma3n"); }
std::string golden() { return gemma3n() + "/golden.safetensors"; }
const Line kF32 = {"--dtype", "f32"};

TEST(Gemma3nSounds, AnswersAreThoseOfTheReference) {
  const Json answers = Json::parse(read_bytes(gemma3n() + "/answers.json"));
  for (const Line& options :
       {Line{}, Line{"--shards", "2", "--prefill-length", "80"}, Line{"--inputs", "sounds"},
        Line{"--layout", "one-program", "--max-sound", "4"},
        Line{"--program", "static", "--context-length", "600"}}) {
    SCOPED_TRACE(options.empty() ? "plain" : options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, gemma3n(), kF32 + options);
    for (const Json& one : answers) {
      SCOPED_TRACE(one.dump().substr(0, 200));
      const Outcome outcome =
          run_ferry(Line{"--json", "run", bundle, "--greedy"} + prompt_of(dir, one));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result["prompt_tokens"], one["ids"]);
      EXPECT_EQ(answered(result), one["tokens"]);
    }
  }
}

TEST(Gemma3nSounds, SoundsOfDifferentLengthsArePadded) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma3n(), kF32);
  for (const Json& one : Json::parse(read_bytes(gemma3n() + "/lengths.json"))) {
    SCOPED_TRACE(one.dump().substr(0, 200));
    const Outcome outcome =
        run_ferry(Line{"--json", "run", bundle, "--greedy"} + prompt_of(dir, one));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["result"]["prompt_tokens"], one["ids"]);
    EXPECT_EQ(answered(outcome.json()["result"]), one["tokens"]);
  }
  const std::string reference = gemma3n() + "/lengths.safetensors";
  const Json report = verified({bundle, "--checkpoint", gemma3n(), "--reference", reference});
  EXPECT_EQ(report["result"]["parity"], true);
  EXPECT_EQ(first_layers(report, 4), (Line{"encoder_hidden_states.0", "encoder_hidden_states.1",
                                           "encoder_last_hidden_state", "audio_features"}));
}

// The encoder hides rows by a mask where they see later ones, and the program takes none.
TEST(Gemma3nSounds, EncodersWithRowsThatSeeLaterOnesTakeSoundsOfOneLength) {
  const TempDir dir;
  const std::string folder =
      with_value(dir, gemma3n(), "config.json",
                 Json::json_pointer("/audio_config/conf_attention_context_right"), 1);
  const std::string bundle = converted(dir, folder, kF32);
  const std::string wav = sound_file("mono_16.wav"), other = sound_file("mono_8.wav");
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 19);
  expect_refused({"run", bundle, "--audio", wav, "--audio", other, "--chat", "a"}, 4,
                 "the processor pads them to the same length");
  expect_refused({"verify", bundle, "--reference", gemma3n() + "/lengths.safetensors"}, 4,
                 "sounds that are padded, which the model hears");
}

TEST(Gemma3nSounds, EveryStageIsProved) {
  for (const Line& options :
       {kF32, Line{"--dtype", "f16", "--shards", "3"}, Line{"--dtype", "bf16"},
        Line{"--dtype", "f32", "--layout", "one-program", "--max-sound", "4"},
        Line{"--quantize", "8da8w"}, Line{"--component-dtype", "audio_encoder=f32"},
        Line{"--dtype", "f32", "--program", "static", "--prefill-length", "200"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, gemma3n(), options);
    const Json report = verified({bundle, "--checkpoint", gemma3n(), "--reference", golden()});
    EXPECT_EQ(report["result"]["parity"], true);
  }
}

TEST(Gemma3nSounds, StagesAreComparedInTheirOrder) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma3n(), kF32);
  const Json report = verified({bundle, "--reference", golden()});
  EXPECT_EQ(first_layers(report, 4), (Line{"encoder_hidden_states.0", "encoder_hidden_states.1",
                                           "encoder_last_hidden_state", "audio_features"}));
  expect_changed_stages_found(dir, gemma3n(), bundle,
                              {"encoder_hidden_states.1", "audio_features", "logits"});
}

TEST(Gemma3nSounds, WithoutAReferenceAGeneratedSoundIsCompared) {
  const TempDir dir;
  expect_generated_sound_compared(converted(dir, gemma3n(), kF32), gemma3n());
}

TEST(Gemma3nSounds, TheManifestStatesTheRowsOfASound) {
  const TempDir dir;
  const Json manifest = Json::parse(read_bytes(converted(dir, gemma3n(), kF32) + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 23);
  EXPECT_EQ(manifest["model"]["audio_causal_frames"], 4);
  EXPECT_EQ(manifest["model"]["audio_row_frames"], 16);
  EXPECT_EQ(manifest["model"]["audio_rows"], 188);
  EXPECT_EQ(manifest["components"].size(), 3U);
  const TempDir text;
  const std::string alone = converted(text, gemma3n(), kF32 + Line{"--inputs", "text"});
  EXPECT_EQ(Json::parse(read_bytes(alone + "/manifest.json"))["components"].size(), 1U);
}

TEST(Gemma3nSounds, PreprocessWritesFramesAndTheirMask) {
  const TempDir dir;
  const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound_file("mono_16.wav"),
                                     "--checkpoint", gemma3n(), "-o", dir / "frames.safetensors"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json tensors = outcome.json()["result"]["tensors"];
  EXPECT_EQ(tensors[0]["shape"], Json({1, 37, 16}));
  EXPECT_EQ(tensors[1]["name"], "input_features_mask");
  EXPECT_EQ(tensors[1]["shape"], Json({1, 37}));
}

TEST(Gemma3nSounds, LongSoundsAreCutAndOthersRefused) {
  const TempDir dir;
  const std::string bundle = converted(dir, gemma3n(), kF32);
  const std::string wav = sound_file("mono_16.wav"), hour = sound_file("two_windows.wav");
  const Outcome cut = run_ferry(
      {"--json", "run", bundle, "--audio", hour, "--chat", "a", "--greedy", "--max-new", "2"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  const Json ids = cut.json()["result"]["prompt_tokens"];
  EXPECT_EQ(std::count(ids.begin(), ids.end(), Json(267)), 188);
  EXPECT_NE((cut.out + cut.err).find("the first 30 of the 31.0 seconds of sound 1"),
            std::string::npos);
  expect_refused({"transcribe", bundle, wav}, 4, "has no request to write a sound down");
  expect_refused({"run", bundle, "--image", picture("tiny.png"), "--chat", "a"}, 2,
                 "takes no images");
  expect_refused({"convert", gemma3n(), "-o", dir / "i", "--inputs", "images"}, 4,
                 "mobilenetv5_300m_enc is supported");
  expect_refused({"convert", gemma3n(), "-o", dir / "l", "--max-sound", "31"}, 2,
                 "cuts sounds to 30 seconds");
  expect_refused({"convert", gemma3n(), "-o", dir / "o", "--layout", "one-program", "--inputs",
                  "sounds", "--prefill-length", "187"},
                 2, "the 188 rows of a sound of gemma3n are tokens of one call");
  expect_refused(
      {"convert", gemma3n(), "-o", dir / "e", "--program", "encoder", "--inputs", "sounds"}, 4,
      "an encoder takes no sounds");
}

TEST(Gemma3nSounds, ConfigsThatAreNotObeyedAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, Json, int, const char*> cases[] = {
      {"/audio_config", 3, 3, "audio_config"},
      {"/audio_config/model_type", "gemma4_audio", 4, "gemma3n_audio is supported"},
      {"/audio_config/hidden_size", 15, 3, "conf_num_attention_heads"},
      {"/audio_config/hidden_size", 1 << 30, 3, "hidden_size"},
      {"/audio_config/hidden_size", 1 << 24, 3, "too wide for chunks"},
      {"/audio_config/input_feat_size", 1 << 20, 3, "input_feat_size"},
      {"/audio_config/conf_num_hidden_layers", 0, 3, "conf_num_hidden_layers"},
      {"/audio_config/conf_num_attention_heads", 3, 3, "conf_num_attention_heads"},
      {"/audio_config/conf_conv_kernel_size", 1 << 20, 3, "conf_conv_kernel_size"},
      {"/audio_config/conf_reduction_factor", 0, 3, "conf_reduction_factor"},
      {"/audio_config/conf_attention_chunk_size", 0, 3, "conf_attention_chunk_size"},
      {"/audio_config/conf_attention_context_right", -1, 3, "conf_attention_context_right"},
      {"/audio_config/conf_attention_logit_cap", 0.0, 3, "conf_attention_logit_cap"},
      {"/audio_config/gradient_clipping", -1.0, 3, "gradient_clipping"},
      {"/audio_config/sscp_conv_channel_size", Json({6, 4, 4}), 3, "no list of two numbers"},
      {"/audio_config/sscp_conv_channel_size", Json({1 << 20, 4}), 3, "sscp_conv_channel_size"},
      {"/audio_config/sscp_conv_kernel_size", Json({3, 3}), 3, "two pairs of numbers"},
      {"/audio_config/sscp_conv_kernel_size", Json({{3, 3}, {3, 0}}), 3, "two pairs of numbers"},
      {"/audio_config/sscp_conv_kernel_size", Json({{3, 60}, {3, 3}}), 3, "leaves none of 16 bins"},
      {"/audio_config/sscp_conv_stride_size", Json({{2, 2}, {2, 1e30}}), 3, "two pairs of numbers"},
      {"/audio_config",
       {{"model_type", "gemma3n_audio"},
        {"vocab_offset", 266},
        {"input_feat_size", 1024},
        {"sscp_conv_channel_size", {4096, 4}},
        {"sscp_conv_kernel_size", Json({{3, 3}, {64, 3}})}},
       3,
       "begins a pair with 64: too many for 4096 channels"},
      {"/audio_config/vocab_size", 5, 3, "5 entries for the ids to 272"},
      {"/audio_config/vocab_offset", 272, 3, "vocab_offset of 272"},
      {"/vision_config/vocab_size", 1, 3, "1 entries for the ids to 266"},
      {"/vision_config/vocab_size", -1, 3, "vocab_size"},
      {"/audio_soft_tokens_per_image", nullptr, 3, "audio_soft_tokens_per_image"},
      {"/audio_soft_tokens_per_image", 1 << 30, 3, "audio_soft_tokens_per_image"},
      {"/audio_token_id", 272, 3, "audio_token_id"}};
  for (const auto& [key, value, code, message] : cases) {
    SCOPED_TRACE(key);
    const std::string folder =
        with_value(dir, gemma3n(), "config.json", Json::json_pointer(key), value);
    expect_refused({"convert", folder, "-o", dir / "out", "--inputs", "sounds"}, code, message);
  }
}

TEST(Gemma3nSounds, ProcessorsThatMakeOtherPromptsAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, const char*, Json, int, const char*> cases[] = {
      {"processor_config.json", "/audio_seq_length", 100, 3,
       "has 100 tokens for a sound, the audio encoder 188"},
      {"processor_config.json", "/feature_extractor/feature_size", 20, 3,
       "makes frames of 20, the audio encoder takes those of 16"},
      {"processor_config.json", "/feature_extractor/feature_extractor_type",
       "Gemma4AudioFeatureExtractor", 3, "is that of Gemma4Processor, the model is another"},
      {"processor_config.json", "/feature_extractor/dither", 0.1, 4, "dither"},
      {"processor_config.json", "/feature_extractor/frame_length_ms", 7.0, 4, "frame_length_ms"},
      {"tokenizer_config.json", "/audio_token", "<unused>", 3, "audio_token_id is 267"},
      {"tokenizer_config.json", "/eoa_token", nullptr, 3, "states no audio_token"}};
  for (const auto& [file, key, value, code, message] : cases) {
    SCOPED_TRACE(std::string(file) + key + value.dump());
    const std::string folder = with_value(dir, gemma3n(), file, Json::json_pointer(key), value);
    const TempDir made;
    const std::string bundle = converted(made, folder, kF32);
    expect_refused({"run", bundle, "--audio", sound_file("mono_16.wav"), "--chat", "a"}, code,
                   message);
  }
}

}  // namespace
}  // namespace ferry::gemma3n_sounds_test
