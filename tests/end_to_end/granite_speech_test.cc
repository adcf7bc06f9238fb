// Granite Speech: prompts, every stage and the answers are those of transformers
// (tests/conformance/make_granite_speech_golden.py).
#include <gtest/gtest.h>

#include "tests/end_to_end/sound_checkpoints.h"

namespace ferry::granite_speech_test {
namespace {

using namespace sound_checkpoints;

std::string granite() { return fixture("speech/granite"); }
std::string plus() { return fixture("speech/granite_plus"); }
const Line kF32 = {"--dtype", "f32"};

TEST(GraniteSpeech, AnswersAreThoseOfTheReference) {
  for (const std::string& checkpoint : {granite(), plus()}) {
    const Json answers = Json::parse(read_bytes(checkpoint + "/answers.json"));
    for (const Line& options : {Line{}, Line{"--shards", "2", "--prefill-length", "7"},
                                Line{"--layout", "one-program", "--max-sound", "4"},
                                Line{"--program", "static", "--context-length", "200"}}) {
      SCOPED_TRACE(checkpoint + (options.empty() ? "" : options.back()));
      const TempDir dir;
      const std::string bundle = converted(dir, checkpoint, kF32 + options);
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
}

TEST(GraniteSpeech, AChatPutsSoundsBeforeItsText) {
  const TempDir dir;
  const std::string bundle = converted(dir, granite(), kF32);
  const Json first = Json::parse(read_bytes(granite() + "/answers.json"))[0];
  for (const char* text : {"What is said?", "<|audio|>What is said?"}) {
    const Outcome outcome = run_ferry({"--json", "run", bundle, "--greedy", "--audio",
                                       sound_file("mono_16.wav"), "--chat", text});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["result"]["prompt_tokens"], first["ids"]);
    EXPECT_EQ(answered(outcome.json()["result"]), first["tokens"]);
  }
}

// A longer sound changes the rows of those before it, so that the chat begins anew.
TEST(GraniteSpeech, ALongerSoundJoinsAChat) {
  const TempDir dir;
  const std::string bundle = converted(dir, granite(), kF32);
  const std::string first = sound_file("mono_8.wav"), second = sound_file("mono_16.wav");
  const Line greedy = {"--max-new", "5", "--greedy", "--ignore-eos", "--json"};
  const Outcome chat = run_ferry_on("/audio " + first + "\nfirst?\n/audio " + second + "\nand?\n",
                                    Line{"run", bundle, "--interactive"} + greedy);
  ASSERT_EQ(chat.code, 0) << chat.err;
  const size_t end = chat.out.find('\n');
  const Json one = Json::parse(chat.out.substr(0, end))["result"];
  const Json two = Json::parse(chat.out.substr(end + 1))["result"];
  const Json messages = {{{"role", "user"}, {"content", "<|audio|>first?"}},
                         {{"role", "assistant"}, {"content", one["text"]}},
                         {{"role", "user"}, {"content", "<|audio|>and?"}}};
  write_bytes(dir / "chat.json", messages.dump());
  const Outcome whole = run_ferry(
      Line{"run", bundle, "--messages", dir / "chat.json", "--audio", first, "--audio", second} +
      greedy);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.json()["result"]["prompt_tokens"], two["prompt_tokens"]);
  EXPECT_EQ(whole.json()["result"]["tokens"], two["tokens"]);
}

TEST(GraniteSpeech, EveryStageIsProved) {
  for (const std::string& checkpoint : {granite(), plus()}) {
    for (const Line& options :
         {kF32, Line{"--dtype", "f16", "--shards", "3"}, Line{"--dtype", "bf16"},
          Line{"--dtype", "f32", "--layout", "one-program", "--max-sound", "4"},
          Line{"--quantize", "8da8w"}, Line{"--component-dtype", "audio_encoder=f32"},
          Line{"--dtype", "f32", "--program", "static"}}) {
      SCOPED_TRACE(checkpoint + options.back());
      const TempDir dir;
      const std::string bundle = converted(dir, checkpoint, options);
      const Json report = verified(
          {bundle, "--checkpoint", checkpoint, "--reference", checkpoint + "/golden.safetensors"});
      EXPECT_EQ(report["result"]["parity"], true);
    }
  }
}

TEST(GraniteSpeech, StagesAreComparedInTheirOrder) {
  const TempDir dir;
  const std::string bundle = converted(dir, granite(), kF32);
  const Json report = verified({bundle, "--reference", granite() + "/golden.safetensors"});
  EXPECT_EQ(first_layers(report, 6),
            (Line{"encoder_hidden_states.0", "encoder_hidden_states.1", "encoder_hidden_states.2",
                  "encoder_hidden_states.3", "encoder_last_hidden_state", "audio_features"}));
  expect_changed_stages_found(dir, granite(), bundle,
                              {"encoder_hidden_states.2", "audio_features", "logits"});
}

TEST(GraniteSpeech, WithoutAReferenceAGeneratedSoundIsCompared) {
  const TempDir dir;
  expect_generated_sound_compared(converted(dir, granite(), kF32), granite());
}

TEST(GraniteSpeech, TheManifestStatesTheRowsOfABlock) {
  const TempDir dir;
  const Json manifest = Json::parse(read_bytes(converted(dir, granite(), kF32) + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 22);
  EXPECT_EQ(manifest["model"]["audio_row_frames"], 6);
  EXPECT_EQ(manifest["model"]["audio_block_rows"], 3);
  EXPECT_EQ(manifest["components"].size(), 3U);
}

TEST(GraniteSpeech, PreprocessWritesPairsOfFrames) {
  const TempDir dir;
  const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound_file("mono_16.wav"),
                                     "--checkpoint", granite(), "-o", dir / "frames.safetensors"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json tensors = outcome.json()["result"]["tensors"];
  EXPECT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0]["shape"], Json({1, 20, 16}));
}

TEST(GraniteSpeech, BundlesBecomeCheckpointsAgain) {
  for (const std::string& checkpoint : {granite(), plus()}) {
    const TempDir dir;
    const std::string bundle = converted(dir, checkpoint, kF32);
    const Outcome outcome =
        run_ferry({"convert", bundle, "--to", "hf", "--dtype", "bf16", "-o", dir / "hf"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const TensorFile made(dir / "hf/model.safetensors"), own(checkpoint + "/model.safetensors");
    for (const char* key : {"encoder.layers.1.attn.to_kv.weight", "projector.query",
                            "encoder.layers.0.conv.up_conv.weight", "encoder.out_mid.bias"}) {
      EXPECT_EQ(made.bytes_of(key), own.bytes_of(key)) << key;
    }
  }
}

TEST(GraniteSpeech, AnAdapterBesideItNeedsAChoice) {
  const TempDir dir;
  const std::string folder = dir / "with";
  std::filesystem::copy(granite(), folder);
  write_bytes(folder + "/adapter_config.json", "{}");
  expect_refused({"convert", folder, "-o", dir / "out"}, 4, "an adapter for prompts with sounds");
}

TEST(GraniteSpeech, WhatASoundCannotBeIsRefused) {
  const TempDir dir;
  const std::string bundle = converted(dir, granite(), kF32 + Line{"--max-sound", "1"});
  const std::string wav = sound_file("mono_16.wav");
  expect_refused({"run", bundle, "--audio", sound_file("two_windows.wav"), "--chat", "a"}, 2,
                 "pairs of frames; the audio encoder takes 50");
  expect_refused({"run", bundle, "--audio", wav, "--chat", "<|audio|> or <|audio|>"}, 3,
                 "2 placeholders");
  expect_refused({"transcribe", bundle, wav}, 4, "has no request to write a sound down");
  expect_refused({"run", bundle, "--image", picture("tiny.png"), "--chat", "a"}, 2,
                 "takes no images");
  expect_refused({"convert", granite(), "-o", dir / "t", "--inputs", "text"}, 4,
                 "the programs of granite_speech take sound");
  expect_refused({"convert", granite(), "-o", dir / "e", "--program", "encoder"}, 4,
                 "granite_speech takes sound");
}

TEST(GraniteSpeech, ConfigsThatAreNotObeyedAreRefused) {
  const TempDir dir;
  const std::tuple<std::string, const char*, Json, int, const char*> cases[] = {
      {granite(), "/encoder_config", 3, 3, "encoder_config"},
      {granite(), "/encoder_config/model_type", "x", 4, "granite_speech_encoder is supported"},
      {granite(), "/encoder_config/hidden_dim", 1 << 30, 3, "hidden_dim"},
      {granite(), "/encoder_config/hidden_dim", 1 << 22, 3, "too wide for blocks of 20 rows"},
      {granite(), "/encoder_config/feedforward_mult", 65, 3, "feedforward_mult"},
      {granite(), "/encoder_config/num_heads", 25, 3, "more than hidden_dim 24"},
      {granite(), "/encoder_config/num_layers", 0, 3, "num_layers"},
      {granite(), "/encoder_config/context_size", 33, 3, "more than max_pos_emb 32"},
      {granite(), "/encoder_config/context_size", 0, 3, "context_size"},
      {granite(), "/encoder_config/conv_kernel_size", 1e30, 3, "conv_kernel_size"},
      {granite(), "/projector_config/model_type", "x", 4, "blip_2_qformer is supported"},
      {granite(), "/projector_config/hidden_size", 33, 3, "does not divide 33"},
      {granite(), "/projector_config/encoder_hidden_size", 25, 3, "gives states of 24"},
      {granite(), "/projector_config/cross_attention_frequency", 0, 3, "cross_attention_frequency"},
      {granite(), "/projector_config/use_qformer_text_input", 3, 3, "use_qformer_text_input"},
      {granite(), "/window_size", 7, 4, "does not divide window_size 7"},
      {granite(), "/downsample_rate", 0, 3, "downsample_rate"},
      {granite(), "/audio_token_index", 272, 3, "audio_token_id"},
      {granite(), "/text_config/model_type", "llama", 4, "supported are granite"},
      {plus(), "/encoder_config/cat_hidden_layers", Json({0, 5}), 3, "cat_hidden_layers"},
      {plus(), "/encoder_config/cat_hidden_layers", Json({2, 2}), 3, "has a number twice"},
      {plus(), "/encoder_config/cat_hidden_layers", nullptr, 3, "gives states of 24"}};
  for (const auto& [checkpoint, key, value, code, message] : cases) {
    SCOPED_TRACE(key + value.dump());
    const std::string folder =
        with_value(dir, checkpoint, "config.json", Json::json_pointer(key), value);
    expect_refused({"convert", folder, "-o", dir / "out"}, code, message);
  }
}

TEST(GraniteSpeech, ProcessorsThatMakeOtherPromptsAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, const char*, Json, int, const char*> cases[] = {
      {"processor_config.json", "/audio_processor/n_mels", 9, 3,
       "makes pairs of frames of 18 values, the audio encoder takes 16"},
      {"processor_config.json", "/audio_processor/projector_window_size", 8, 3,
       "makes 4 rows of 8 pairs of frames, the audio encoder 3 of 6"},
      {"processor_config.json", "/audio_processor/feature_extractor_type",
       "Gemma4AudioFeatureExtractor", 3, "is not that of GraniteSpeechProcessor"},
      {"processor_config.json", "/other", 1, 4, "other"},
      {"tokenizer_config.json", "/audio_token", "<bos>", 3, "audio_token_id is 3"}};
  for (const auto& [file, key, value, code, message] : cases) {
    SCOPED_TRACE(std::string(file) + key + value.dump());
    const std::string folder = with_value(dir, granite(), file, Json::json_pointer(key), value);
    const TempDir made;
    const std::string bundle = converted(made, folder, kF32);
    expect_refused({"run", bundle, "--audio", sound_file("mono_16.wav"), "--chat", "a"}, code,
                   message);
  }
}

}  // namespace
}  // namespace ferry::granite_speech_test
