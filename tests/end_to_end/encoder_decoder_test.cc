// Encoder-decoders: every stage and the answers are those of transformers
// (tests/conformance/make_source_golden.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::encoder_decoder_test {
namespace {

using namespace verb_outcomes;

constexpr const char* kFixtures[] = {"t5", "t5_gated", "umt5", "marian", "t5gemma"};

std::string checkpoint(const std::string& name) { return fixture("source/" + name); }
std::string golden(const std::string& name) { return checkpoint(name) + "/golden.safetensors"; }

TEST(EncoderDecoder, AnswersAreThoseOfTheReference) {
  for (const char* name : kFixtures) {
    const TempDir dir;
    const std::string bundle = converted(dir, checkpoint(name), {"--dtype", "f32"});
    for (const Json& one : Json::parse(read_bytes(checkpoint(name) + "/answers.json"))) {
      SCOPED_TRACE(one.dump());
      const Outcome outcome =
          run_ferry({"--json", "run", bundle, "--prompt", std::string(one["text"])});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(outcome.json()["result"]["tokens"], one["tokens"]);
      EXPECT_EQ(outcome.json()["result"]["text"], one["answer"]);
    }
  }
}

TEST(EncoderDecoder, LinesOfPromptsAreTextsOfTheirOwn) {
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint("t5"), {"--dtype", "f32"});
  const Json wanted = Json::parse(read_bytes(checkpoint("t5") + "/answers.json"));
  std::string lines;
  for (const Json& one : wanted) lines += Json{{"tokens", one["source"]}}.dump() + "\n";
  write_bytes(dir / "lines", lines);
  const Outcome outcome = run_ferry({"--json", "run", bundle, "--prompts", dir / "lines"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json answers = outcome.json()["result"]["answers"];
  ASSERT_EQ(answers.size(), wanted.size());
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i]["tokens"], wanted[i]["tokens"]);
}

// The encoder's layers are stages of the comparison, before those of the decoder.
TEST(EncoderDecoder, EveryStageIsProved) {
  for (const char* name : kFixtures) {
    for (const Line& options :
         {Line{"--dtype", "f32"}, Line{"--dtype", "f16", "--shards", "2"},
          Line{"--dtype", "f32", "--layout", "one-program"}, Line{"--quantize", "8da8w"},
          Line{"--quantize", "8da4w", "--quantize-embedding", "8"},
          Line{"--dtype", "f32", "--kv-dtype", "f16", "--prefill-length", "1"},
          Line{"--dtype", "f32", "--kv-dtype", "i8", "--max-source", "20"},
          Line{"--component-dtype", "source_encoder=f32"}}) {
      SCOPED_TRACE(options.back());
      const TempDir dir;
      const std::string bundle = converted(dir, checkpoint(name), options);
      const Json report =
          verified({bundle, "--checkpoint", checkpoint(name), "--reference", golden(name)});
      EXPECT_EQ(report["result"]["parity"], true);
    }
  }
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint("t5"), {"--dtype", "f32"});
  const Json report = verified({bundle, "--reference", golden("t5")});
  EXPECT_EQ(first_layers(report, 4), (Line{"encoder_hidden_states.0", "encoder_hidden_states.1",
                                           "encoder_last_hidden_state", "hidden_states.0"}));
}

TEST(EncoderDecoder, WithoutAReferenceGeneratedTextsAreCompared) {
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint("t5"), {"--dtype", "f32"});
  EXPECT_EQ(verified({bundle, "--checkpoint", checkpoint("t5")})["result"]["parity"], true);
}

TEST(EncoderDecoder, AWrongEncoderIsFound) {
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint("t5"), {"--dtype", "f32"});
  TensorFile file(golden("t5"));
  std::string ids = file.bytes_of("text0.source_ids");
  ids[8] = static_cast<char>(ids[8] ^ 0x04);  // another first token but one
  file.set_bytes("text0.source_ids", ids);
  file.write(dir / "golden.safetensors");
  const Json report = verified({bundle, "--reference", dir / "golden.safetensors"}, 1);
  EXPECT_EQ(report["result"]["first_divergence"]["tensor"], "encoder_hidden_states.0");
}

// Beams choose other tokens; the likeliest ones obey what is forbidden and forced all the same.
TEST(EncoderDecoder, BeamsAreRefused) {
  const TempDir dir;
  const std::string source = dir / "m";
  std::filesystem::copy(checkpoint("marian"), source);
  Json generation = Json::parse(read_bytes(source + "/generation_config.json"));
  generation["num_beams"] = 4;
  write_bytes(source + "/generation_config.json", generation.dump());
  const std::string bundle = converted(dir, source, {"--dtype", "f32"});
  const Json one = Json::parse(read_bytes(source + "/answers.json"))[0];
  const std::string text = one["text"];
  expect_refused({"run", bundle, "--prompt", text}, 4, "'num_beams' is 4, which is not supported");
  const Outcome outcome = run_ferry({"--json", "run", bundle, "--prompt", text, "--greedy"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["result"]["tokens"], one["tokens"]);
}

TEST(EncoderDecoder, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string t5 = checkpoint("t5");
  const std::string bundle = converted(dir, t5, {"--dtype", "f32", "--max-source", "20"});
  expect_refused({"run", bundle, "--tokens", "1,2,300"}, 2, "token 300 of the text is outside");
  std::string many = "3";
  for (int i = 0; i < 20; ++i) many += ",3";
  expect_refused({"run", bundle, "--tokens", many}, 2,
                 "a text of 21 tokens, the encoder takes 1 to 20");
  expect_refused({"run", bundle, "--chat", "Hello"}, 2, "an encoder-decoder does not take --chat");
  expect_refused({"run", bundle, "--interactive"}, 2, "does not take --interactive");
  expect_refused({"run", bundle, "--tokens", "3", "--save-state", dir / "state"}, 2,
                 "does not take --save-state");
  write_bytes(dir / "text", "3,4,5,6,7,8\n");
  expect_refused({"verify", bundle, "--perplexity", dir / "text"}, 2,
                 "an encoder-decoder, which needs a text for its encoder");
  for (const char* program : {"static", "encoder"}) {
    expect_refused({"convert", t5, "-o", dir / "s", "--program", program}, 4,
                   "t5 has an encoder and a decoder, and stateful programs alone");
  }
  expect_refused(
      {"convert", t5, "-o", dir / "c", "--quantize", "8da4w", "--calibrate-weights", "default"}, 4,
      "an encoder-decoder, which texts alone do not run");
  expect_refused({"convert", t5, "-o", dir / "p.pth", "--to", "pth"}, 4,
                 "'t5' is a encoder-decoder model");
  expect_refused({"convert", fixture("speech/whisper"), "-o", dir / "w", "--max-source", "3"}, 2,
                 "max-source: is for models with an encoder and a decoder");
}

}  // namespace
}  // namespace ferry::encoder_decoder_test
