// Models of speech that take samples: every stage and the transcripts are those of transformers
// (tests/conformance/make_speech_golden.py moonshine).
#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::speech_samples_test {
namespace {

using namespace verb_outcomes;

std::string moonshine() { return fixture("speech/moonshine"); }
std::string golden() { return moonshine() + "/golden.safetensors"; }

std::string sound(const std::string& name) { return fixture("sound/" + name); }

std::string convert(const TempDir& dir, const Line& options) {
  return converted(dir, moonshine(), options);
}

// Sounds of four lengths go through one program.
TEST(SpeechSamples, TranscriptsAreThoseOfTheReference) {
  for (const Line& options : {Line{"--dtype", "f32"}, Line{"--dtype", "f32", "--shards", "3"},
                              Line{"--dtype", "f32", "--layout", "one-program"}}) {
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    for (const Json& one : Json::parse(read_bytes(moonshine() + "/transcripts.json"))) {
      SCOPED_TRACE(one.dump());
      const Outcome outcome = run_ferry({"--json", "transcribe", bundle, sound(one["sound"])});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result["tokens"], one["tokens"]);
      EXPECT_EQ(result["windows"], 1);
      EXPECT_EQ(result["timestamps"], false);
    }
  }
}

TEST(SpeechSamples, EveryStageIsProved) {
  for (const Line& options :
       {Line{"--dtype", "f32"}, Line{"--dtype", "f16", "--shards", "2"}, Line{"--dtype", "bf16"},
        Line{"--dtype", "f32", "--layout", "one-program"}, Line{"--quantize", "8da8w"},
        Line{"--quantize", "8da4w"}, Line{"--dtype", "f32", "--kv-dtype", "i8"},
        Line{"--dtype", "f32", "--prefill-length", "1", "--max-sound", "1"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    const Json report = verified({bundle, "--checkpoint", moonshine(), "--reference", golden()});
    EXPECT_EQ(report["result"]["parity"], true);
  }
}

// The path in f32 is compared with the tensors of the encoder too.
TEST(SpeechSamples, TheEncoderOfTheCheckpointIsCompared) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  const std::string reference = dir / "golden.safetensors";
  TensorFile file(golden());
  std::string bytes = file.bytes_of("audio1.encoder_hidden_states.1");
  bytes[3] = static_cast<char>(bytes[3] ^ 0x01);
  file.set_bytes("audio1.encoder_hidden_states.1", bytes);
  file.write(reference);
  const Json report = verified({bundle, "--checkpoint", moonshine(), "--reference", reference}, 1);
  EXPECT_NE(report.dump().find("encoder_hidden_states.1"), std::string::npos);
}

TEST(SpeechSamples, WithoutAReferenceGeneratedSoundIsCompared) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32", "--max-sound", "1"});
  EXPECT_EQ(verified({bundle, "--checkpoint", moonshine()})["result"]["parity"], true);
}

TEST(SpeechSamples, PreprocessWritesTheSamplesOfTheReference) {
  const TempDir dir;
  const std::string out = dir / "s.safetensors";
  const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound("mono_16.wav"),
                                     "--checkpoint", moonshine(), "-o", out});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["result"]["tensors"][0]["name"], "input_values");
  EXPECT_EQ(TensorFile(out).floats_of("input_values"),
            TensorFile(golden()).floats_of("audio1.input_values"));
}

TEST(SpeechSamples, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32", "--max-sound", "2"});
  const std::string wav = sound("mono_16.wav");
  expect_refused({"transcribe", bundle, sound("long.wav")}, 2,
                 "a sound of 43200 samples, the audio encoder takes 895 to 32000");
  expect_refused({"transcribe", bundle, sound("noise_flac.flac")}, 2, "a sound of 800 samples");
  for (const Line& option :
       {Line{"--language", "en"}, Line{"--task", "translate"}, Line{"--timestamps"}}) {
    expect_refused(Line{"transcribe", bundle, wav} + option, 2, option.front() + ": ");
  }
  expect_refused({"run", bundle, "--tokens", "1,2", "--greedy"}, 2,
                 "a model of speech, which needs sound");
  expect_refused({"convert", moonshine(), "-o", dir / "s", "--program", "static"}, 4,
                 "moonshine takes sound, and has stateful programs alone");
  expect_refused({"convert", moonshine(), "-o", dir / "z", "--max-sound", "601"}, 2, "max-sound");
  expect_refused({"convert", fixture("speech/whisper"), "-o", dir / "w", "--max-sound", "3"}, 2,
                 "is for audio encoders that take samples or frames of any number");
}

TEST(SpeechSamples, ConfigsThatTheReferenceCannotRunAreRefused) {
  const TempDir dir;
  const std::pair<const char*, Json> cases[] = {{"encoder_num_attention_heads", 4},
                                                {"encoder_num_key_value_heads", 1},
                                                {"decoder_num_key_value_heads", 1},
                                                {"rope_parameters",
                                                 {{"rope_type", "dynamic"},
                                                  {"factor", 2.0},
                                                  {"rope_theta", 10000.0},
                                                  {"partial_rotary_factor", 0.9}}}};
  for (const auto& [key, value] : cases) {
    const std::string folder = dir / key;
    std::filesystem::copy(moonshine(), folder);
    Json config = Json::parse(read_bytes(folder + "/config.json"));
    config[key] = value;
    write_bytes(folder + "/config.json", config.dump());
    expect_refused({"convert", folder, "-o", dir / "out"}, 4, key);
  }
}

}  // namespace
}  // namespace ferry::speech_samples_test
