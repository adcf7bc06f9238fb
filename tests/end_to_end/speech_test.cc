// Models of speech: frames, every stage and the transcripts are those of transformers
// (tests/conformance/make_speech_golden.py).
#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::speech_test {
namespace {

using namespace verb_outcomes;

std::string whisper() { return fixture("speech/whisper"); }
std::string golden() { return whisper() + "/golden.safetensors"; }

std::string sound(const std::string& name) { return fixture("sound/" + name); }

std::string convert(const TempDir& dir, const Line& options) {
  return converted(dir, whisper(), options);
}

TEST(Speech, TranscriptsAreThoseOfTheReference) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  for (const Json& one : Json::parse(read_bytes(whisper() + "/transcripts.json"))) {
    SCOPED_TRACE(one.dump());
    Line line = {"--json", "transcribe", bundle, sound(one["sound"])};
    if (one.contains("language")) line = line + Line{"--language", one["language"]};
    if (one.contains("task")) line = line + Line{"--task", one["task"]};
    if (one.value("timestamps", false)) line.push_back("--timestamps");
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json result = outcome.json()["result"];
    EXPECT_EQ(result["tokens"], one["tokens"]);
    ASSERT_EQ(result["segments"].size(), one["segments"].size());
    for (size_t i = 0; i < one["segments"].size(); ++i) {
      const Json &got = result["segments"][i], &want = one["segments"][i];
      EXPECT_EQ(got["tokens"], want["tokens"]) << i;
      EXPECT_NEAR(got["start"].get<double>(), want["start"].get<double>(), 1e-5) << i;
      EXPECT_NEAR(got["end"].get<double>(), want["end"].get<double>(), 1e-5) << i;
    }
  }
}

// The audio encoder's layers are stages of the comparison, before those of the decoder.
TEST(Speech, EveryStageIsProved) {
  for (const Line& options :
       {Line{"--dtype", "f32"}, Line{"--dtype", "f16", "--shards", "3"},
        Line{"--dtype", "f32", "--layout", "one-program"}, Line{"--quantize", "8da8w"},
        Line{"--dtype", "f32", "--kv-dtype", "f16", "--prefill-length", "1"},
        Line{"--component-dtype", "audio_encoder=f32"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = convert(dir, options);
    const Json report = verified({bundle, "--checkpoint", whisper(), "--reference", golden()});
    EXPECT_EQ(report["result"]["parity"], true);
  }
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  const Json report = verified({bundle, "--reference", golden()});
  EXPECT_EQ(first_layers(report, 4), (Line{"encoder_hidden_states.0", "encoder_hidden_states.1",
                                           "encoder_last_hidden_state", "hidden_states.0"}));
}

TEST(Speech, AWrongEncoderIsFound) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  const std::string reference = dir / "golden.safetensors";
  TensorFile file(golden());
  std::string bytes = file.bytes_of("audio1.input_features");
  ASSERT_GT(bytes.size(), 4u);
  std::swap(bytes[3], bytes.back());
  bytes[2] = static_cast<char>(bytes[2] ^ 0x40);
  file.set_bytes("audio1.input_features", bytes);
  file.write(reference);
  const Json report = verified({bundle, "--reference", reference}, 1);
  EXPECT_EQ(report["result"]["first_divergence"]["tensor"], "encoder_hidden_states.0");
}

TEST(Speech, WithoutAReferenceGeneratedSoundIsCompared) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  EXPECT_EQ(verified({bundle, "--checkpoint", whisper()})["result"]["parity"], true);
}

TEST(Speech, PreprocessWritesTheFramesOfTheReference) {
  const TempDir dir;
  const std::string out = dir / "f.safetensors";
  const Outcome outcome = run_ferry({"--json", "preprocess", "--audio", sound("mono_16.wav"),
                                     "--checkpoint", whisper(), "-o", out});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["result"]["audio"]["sampling_rate"], 16000);
  const TensorFile got(out), want(golden());
  const std::vector<float> ours = got.floats_of("input_features");
  const std::vector<float> theirs = want.floats_of("audio1.input_features");
  ASSERT_EQ(ours.size(), theirs.size());
  // The reference has the torch path, which transforms in f32.
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-3F) << i;
}

TEST(Speech, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string bundle = convert(dir, {"--dtype", "f32"});
  const std::string wav = sound("mono_16.wav");
  expect_refused({"transcribe", bundle, wav, "--language", "fr"}, 2,
                 "--language fr: the model has <|de|> <|en|>");
  expect_refused({"transcribe", bundle, wav, "--task", "sing"}, 2, "--task sing: the model has");
  expect_refused({"transcribe", bundle, whisper() + "/config.json"}, 4,
                 "neither a WAV nor a FLAC file");
  expect_refused({"transcribe", bundle, dir / "none.wav"}, 5, "none.wav");
  expect_refused({"run", bundle, "--tokens", "1,2", "--greedy"}, 2,
                 "a model of speech, which needs sound");
  expect_refused({"convert", whisper(), "-o", dir / "s", "--program", "static"}, 4,
                 "whisper takes sound, and has stateful programs alone");
  expect_refused({"convert", whisper(), "-o", dir / "c", "--quantize", "8da4w",
                  "--calibrate-weights", "default"},
                 4, "a model of speech, which texts alone do not run");
  expect_refused({"convert", whisper(), "-o", dir / "p.pth", "--to", "pth"}, 4,
                 "'whisper' is a speech model, export_llama takes text decoders");
  const std::string text = dir / "text";
  ASSERT_EQ(run_ferry({"convert", text_checkpoint(dir), "-o", text}).code, 0);
  expect_refused({"transcribe", text, wav}, 2, "has no audio encoder, and takes no sound");
  expect_refused({"preprocess", "--audio", wav, "--bundle", text, "-o", dir / "f.safetensors"}, 2,
                 "has no audio encoder");
}

}  // namespace
}  // namespace ferry::speech_test
