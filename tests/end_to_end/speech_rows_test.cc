// Language models that hear (Voxtral): prompts, every stage and the answers are those of
// transformers and mistral-common (tests/conformance/make_voxtral_golden.py).
#include <gtest/gtest.h>

#include "tests/end_to_end/sound_checkpoints.h"

namespace ferry::speech_rows_test {
namespace {

using namespace sound_checkpoints;

std::string voxtral() { return fixture("speech/voxtral"); }
std::string golden() { return voxtral() + "/golden.safetensors"; }
std::string sound(const std::string& name) { return fixture("sound/" + name); }

std::string convert(const TempDir& dir, const Line& options) {
  return converted(dir, voxtral(), options);
}

Json answers() { return Json::parse(read_bytes(voxtral() + "/answers.json")); }

// Writes the messages of a case without the names of sounds, and returns these.
Line write_messages(const Json& one, const std::string& path) {
  Line sounds;
  Json messages = one["messages"];
  for (Json& message : messages) {
    if (!message["content"].is_array()) continue;
    for (Json& item : message["content"]) {
      if (!item.contains("audio")) continue;
      sounds = sounds + Line{"--audio", sound(item["audio"])};
      item = {{"type", "audio"}};
    }
  }
  write_bytes(path, messages.dump());
  return sounds;
}

TEST(SpeechRows, AnswersAreThoseOfTheReference) {
  for (const Line& options :
       {Line{"--dtype", "f32"}, Line{"--dtype", "f32", "--shards", "2", "--prefill-length", "16"},
        Line{"--dtype", "f32", "--layout", "one-program"},
        Line{"--dtype", "f32", "--program", "static"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    for (const Json& one : answers()) {
      SCOPED_TRACE(one.dump());
      Line line;
      if (one.contains("sound")) {
        line = {"--json", "transcribe", bundle, sound(one["sound"])};
        if (one.contains("language")) line = line + Line{"--language", one["language"]};
      } else {
        const std::string chat = dir / "chat.json";
        const Line sounds = write_messages(one, chat);
        line = Line{"--json", "run", bundle, "--messages", chat, "--greedy"} + sounds;
      }
      const Outcome outcome = run_ferry(line);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result[one.contains("sound") ? "forced_tokens" : "prompt_tokens"], one["ids"]);
      EXPECT_EQ(answered(result), one["tokens"]);
    }
  }
}

TEST(SpeechRows, EveryStageIsProved) {
  for (const Line& options :
       {Line{"--dtype", "f32"}, Line{"--dtype", "f16", "--shards", "3"}, Line{"--dtype", "bf16"},
        Line{"--dtype", "f32", "--layout", "one-program"}, Line{"--quantize", "8da8w"},
        Line{"--quantize", "8da4w"}, Line{"--component-dtype", "audio_encoder=f32"},
        Line{"--dtype", "f32", "--program", "static"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    const Json report = verified({bundle, "--checkpoint", voxtral(), "--reference", golden()});
    EXPECT_EQ(report["result"]["parity"], true);
  }
}

TEST(SpeechRows, StagesAreComparedInTheirOrder) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  const Json report = verified({bundle, "--reference", golden()});
  EXPECT_EQ(first_layers(report, 4), (Line{"encoder_hidden_states.0", "encoder_hidden_states.1",
                                           "encoder_last_hidden_state", "audio_features"}));
}

TEST(SpeechRows, AChangedStageIsFound) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  expect_changed_stages_found(dir, voxtral(), bundle,
                              {"encoder_hidden_states.1", "audio_features", "logits"});
}

TEST(SpeechRows, WithoutAReferenceGeneratedSoundIsCompared) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  const Json report = verified({bundle, "--checkpoint", voxtral()});
  EXPECT_EQ(report["result"]["parity"], true);
  EXPECT_NE(report.dump().find("audio_features"), std::string::npos);
  EXPECT_EQ(verified({bundle, "--against", bundle})["result"]["parity"], true);
}

TEST(SpeechRows, PreprocessWritesWindows) {
  const TempDir dir;
  const auto shape_of = [&](const std::string& file) {
    const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound(file),
                                       "--checkpoint", voxtral(), "-o", dir / file});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["result"]["tensors"][0]["shape"];
  };
  EXPECT_EQ(shape_of("mono_16.wav"), Json({1, 4, 3000}));
  EXPECT_EQ(shape_of("two_windows.wav"), Json({2, 4, 3000}));
}

TEST(SpeechRows, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32", "--context-length", "50"});
  const std::string wav = sound("mono_16.wav");
  expect_refused({"transcribe", bundle, sound("two_windows.wav")}, 2,
                 "becomes 60 rows, the context has 50 positions");
  expect_refused({"transcribe", bundle, wav, "--language", "english"}, 2, "two letters");
  expect_refused({"transcribe", bundle, wav, "--timestamps"}, 2, "--timestamps: ");
  expect_refused({"run", bundle, "--audio", wav, "--tokens", "1,2"}, 2, "--audio needs --prompt");
  expect_refused({"run", bundle, "--audio", wav, "--image", wav, "--prompt", "a"}, 2,
                 "this bundle takes no images");
  expect_refused({"run", bundle, "--audio", wav, "--chat", "a", "--system", "b"}, 4,
                 "a system message beside sounds");
  write_bytes(dir / "chat.json", R"([{"role": "user", "content": [{"type": "audio"}]}])");
  expect_refused({"run", bundle, "--messages", dir / "chat.json"}, 3, "1 sounds, 0 are given");
  expect_refused({"convert", voxtral(), "-o", dir / "t", "--inputs", "text"}, 4,
                 "the programs of voxtral take sound");
  expect_refused({"convert", voxtral(), "-o", dir / "i", "--inputs", "images"}, 4, "voxtral");
  expect_refused({"convert", voxtral(), "-o", dir / "e", "--program", "encoder"}, 4, "takes sound");
}

TEST(SpeechRows, ABundleWithoutItsTokenizerTakesTokensAlone) {
  const TempDir dir;
  const std::string folder = dir / "bare";
  std::filesystem::copy(voxtral(), folder);
  std::filesystem::remove(folder + "/tekken.json");
  const std::string bundle = converted(dir, folder, {"--dtype", "f32"});
  expect_refused({"transcribe", bundle, sound("mono_16.wav")}, 4, "tekken.json");
  const Outcome outcome = run_ferry({"run", bundle, "--tokens", "1,50,60", "--greedy"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(SpeechRows, ConfigsThatAreNotObeyedAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, Json, int, const char*> cases[] = {
      {"/audio_config", 3, 3, "audio_config"},
      {"/audio_config/model_type", "whisper", 4, "model_type"},
      {"/audio_config/intermediate_size", 401, 4, "intermediate_size"},
      {"/audio_config/intermediate_size", 56, 4, "max_source_positions"},
      {"/audio_config/num_attention_heads", 3, 3, "num_attention_heads"},
      {"/audio_config/num_attention_heads", 0, 3, "num_attention_heads"},
      {"/audio_config/max_source_positions", 1 << 30, 3, "max_source_positions"},
      {"/audio_config/hidden_size", -8, 3, "hidden_size"},
      {"/audio_config/num_mel_bins", 1 << 20, 3, "num_mel_bins"},
      {"/audio_config/activation_function", "mish", 4, "activation_function"},
      {"/projector_hidden_act", "mish", 4, "projector_hidden_act"},
      {"/audio_token_id", nullptr, 3, "audio_token_id"},
      {"/audio_token_id", 308, 3, "audio_token_id"},
      {"/text_config/model_type", "qwen2", 4, "model_type"}};
  for (const auto& [key, value, code, message] : cases) {
    SCOPED_TRACE(key);
    const std::string folder =
        with_value(dir, voxtral(), "config.json", Json::json_pointer(key), value);
    expect_refused({"convert", folder, "-o", dir / "out"}, code, message);
  }
}

TEST(SpeechRows, AConfigWithoutItsEncoderHasTheSizesOfTheClass) {
  for (const Json& value : {Json(nullptr), Json::object()}) {
    const TempDir dir;
    const std::string folder =
        with_value(dir, voxtral(), "config.json", Json::json_pointer("/audio_config"), value);
    const Outcome outcome = run_ferry({"convert", folder, "-o", dir / "out"});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_NE(outcome.err.find("the config wants [1280, 128, 3]"), std::string::npos);
  }
}

// The class of the reference has no ties.
TEST(SpeechRows, AHeadIsNeverTied) {
  for (const std::string key : {"/tie_word_embeddings", "/text_config/tie_word_embeddings"}) {
    const TempDir dir;
    const std::string folder =
        with_value(dir, voxtral(), "config.json", Json::json_pointer(key), true);
    const std::string bundle = converted(dir, folder, {"--dtype", "f32"});
    EXPECT_EQ(verified({bundle, "--reference", golden()})["result"]["parity"], true);
  }
}

TEST(SpeechRows, ProcessorsThatMakeOtherPromptsAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, const char*, Json, int, const char*> cases[] = {
      {"tekken.json", "/audio/frame_rate", 2.0, 3, "makes 60 placeholders"},
      {"tekken.json", "/audio/chunk_length_s", 15.0, 3, "makes 15 placeholders"},
      {"tekken.json", "/audio/chunk_length_s", nullptr, 3, "chunk_length_s"},
      {"tekken.json", "/audio", nullptr, 4, "'audio'"},
      {"tekken.json", "/special_tokens/24/token_str", "[SOUND]", 3, "[AUDIO]"},
      {"tekken.json", "/config/version", "v99", 4, "v99"},
      {"tekken.json", "/config/default_vocab_size", 1 << 30, 3, "default_vocab_size"},
      {"tekken.json", "/config/default_num_special_tokens", 400, 3, "more control tokens"},
      {"tekken.json", "/vocab/3/token_bytes", "AQ==", 3, "vocab[3]"},
      {"preprocessor_config.json", "/processor_class", "WhisperProcessor", 3, "VoxtralProcessor"},
      {"preprocessor_config.json", "/chunk_length", 10, 4, "VoxtralProcessor"},
      {"preprocessor_config.json", "/feature_size", 5, 3, "the audio encoder takes 3000 of 4"}};
  for (const auto& [file, key, value, code, message] : cases) {
    SCOPED_TRACE(std::string(file) + key + value.dump());
    const std::string folder = with_value(dir, voxtral(), file, Json::json_pointer(key), value);
    const TempDir made;
    const std::string bundle = converted(made, folder, {"--dtype", "f32"});
    expect_refused({"transcribe", bundle, sound("mono_16.wav")}, code, message);
  }
}

TEST(SpeechRows, OtherOutputsAreRefusedOrHaveTheTextAlone) {
  const TempDir dir;
  for (const std::string to : {"pth", "bpte"}) {
    const Line more = to == "bpte" ? Line{"--reference", golden()} : Line{};
    expect_refused(Line{"convert", voxtral(), "--to", to, "-o", dir / to} + more, 4, "speech");
  }
  const Outcome outcome = run_ferry(
      {"convert", voxtral(), "--to", "gguf", "--outtype", "f32", "-o", dir / "text.gguf"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("it takes no sounds"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("images"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace ferry::speech_rows_test
