// Encoders, end to end. The reference is transformers' states, and torch's modules behind them.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <span>

#include "tests/cli/ferry_process.h"
#include "tests/cli/schema_check.h"

namespace ferry {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kFixtures = {"embedding_gemma", "gemma2_two_way", "llama_two_way",
                                            "mistral_two_way", "qwen3_causal"};

std::string encoder(const std::string& name) { return fixture("encoder/" + name); }

std::vector<std::string> options_for(const std::string& name) {
  // Nothing in its config says that it is one.
  if (name == "qwen3_causal") return {"--program", "encoder"};
  return {};
}

Outcome convert(const std::string& source, const std::string& to, std::vector<std::string> more) {
  std::vector<std::string> line = {"convert", source, "-o", to};
  line.insert(line.end(), more.begin(), more.end());
  return run_ferry(line);
}

class Encoder : public testing::TestWithParam<std::string> {
 protected:
  void holds(std::vector<std::string> more) {
    const std::vector<std::string> own = options_for(GetParam());
    more.insert(more.end(), own.begin(), own.end());
    const Outcome made = convert(encoder(GetParam()), dir_ / "b", more);
    ASSERT_EQ(made.code, 0) << made.err;
    const Outcome verified = run_ferry({"verify", dir_ / "b", "--reference",
                                        encoder(GetParam()) + "/golden.safetensors", "--json"});
    EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
    EXPECT_TRUE(schema_problems("verify.json", verified.json()).empty());
    const Json cases = verified.json()["result"]["encoded"];
    ASSERT_EQ(cases.size(), 2U);
    for (const Json& prompt : cases) {
      EXPECT_TRUE(prompt["not_compared"].empty()) << prompt;
      EXPECT_FALSE(prompt["tensors"].empty());
    }
  }
  TempDir dir_;
};

TEST_P(Encoder, HasTheStatesOfTheReference) { holds({"--dtype", "f32"}); }
TEST_P(Encoder, HasThemInParts) { holds({"--dtype", "f32", "--shards", "2"}); }
TEST_P(Encoder, HasThemInHalfPrecision) { holds({"--dtype", "bf16"}); }

INSTANTIATE_TEST_SUITE_P(All, Encoder, testing::ValuesIn(kFixtures),
                         [](const auto& test) { return test.param; });

TEST(Encoders, AWrongStateIsNoParity) {
  const TempDir dir;
  ASSERT_EQ(convert(encoder("llama_two_way"), dir / "b", {"--dtype", "f32"}).code, 0);
  TensorFile golden(encoder("llama_two_way") + "/golden.safetensors");
  const auto begin = golden.header["long.last_hidden_state"]["data_offsets"][0].get<size_t>();
  const float wrong = 1.5F;
  golden.data.replace(begin + 400, sizeof wrong, reinterpret_cast<const char*>(&wrong),
                      sizeof wrong);
  golden.write(dir / "wrong.safetensors");
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", dir / "wrong.safetensors"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.err.find("prompt 'long': last_hidden_state differs by"), std::string::npos)
      << verified.err;
}

// A copy with a tokenizer.
std::string with_tokenizer(const TempDir& dir) {
  const std::string to = dir / "checkpoint";
  std::filesystem::copy(encoder("embedding_gemma"), to, std::filesystem::copy_options::recursive);
  write_bytes(to + "/tokenizer.json", read_bytes(fixture("tokenizer/gemma/tokenizer.json")));
  return to;
}

TEST(Encoders, EmbedGivesTheVectorsOfTexts) {
  const TempDir dir;
  ASSERT_EQ(convert(with_tokenizer(dir), dir / "b", {"--dtype", "f32"}).code, 0);
  for (const Json& row : Json::parse(read_bytes(encoder("embedding_gemma") + "/texts.json"))) {
    std::vector<std::string> line = {"embed", dir / "b", "--text", row["text"], "--json"};
    if (row["prompt"] != "") line.insert(line.end(), {"--prompt-name", row["prompt"]});
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(schema_problems("embed.json", outcome.json()).empty());
    const Json text = outcome.json()["result"]["texts"][0];
    EXPECT_EQ(text["tokens"], row["ids"].size());
    ASSERT_EQ(text["embedding"].size(), row["embedding"].size());
    for (size_t i = 0; i < row["embedding"].size(); ++i) {
      EXPECT_NEAR(text["embedding"][i].get<double>(), row["embedding"][i].get<double>(), 1e-5);
    }
  }
}

TEST(Encoders, EmbedAnswersEachLineOfItsInput) {
  const TempDir dir;
  ASSERT_EQ(convert(with_tokenizer(dir), dir / "b", {"--dtype", "f32"}).code, 0);
  const Outcome one = run_ferry({"embed", dir / "b", "--text", "Mars is red."});
  const Outcome two = run_ferry_on("\"Mars is red.\"\n\n\"Mars is red.\"\n", {"embed", dir / "b"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.out, one.out + one.out);
  const Outcome bad = run_ferry_on("Mars\n", {"embed", dir / "b"});
  EXPECT_EQ(bad.code, 3);
  const Outcome states = run_ferry({"embed", dir / "b", "--tokens", "4,5,6", "--states"});
  EXPECT_EQ(Json::parse(states.out).size(), 3U);
}

struct Refusal {
  std::vector<std::string> line;
  int code;
  std::string said;
};

TEST(Encoders, WhatTheyCannotDoIsRefused) {
  const TempDir dir;
  const std::string source = encoder("llama_two_way");
  ASSERT_EQ(convert(source, dir / "b", {}).code, 0);
  ASSERT_EQ(convert(fixture("golden/llama"), dir / "d", {}).code, 0);
  const std::string made = dir / "b";
  const std::vector<Refusal> refusals = {
      {{"convert", source, "-n", "--program", "stateful"}, 4, "programs of style encoder alone"},
      {{"convert", source, "-n", "--program", "static"}, 4, "programs of style encoder alone"},
      {{"convert", source, "-n", "--prefill-length", "7"}, 2, "--prefill-length: an encoder"},
      {{"convert", source, "-n", "--kv-dtype", "f16"}, 2, "--kv-dtype: an encoder"},
      {{"convert", source, "--to", "gguf", "-o", dir / "g"}, 4, "becomes a bundle only"},
      {{"convert", made, "--to", "hf", "-o", dir / "h"}, 4, "only bundles of decoders"},
      {{"convert", fixture("golden/lfm2"), "-n", "--program", "encoder"}, 4, "without attention"},
      {{"run", made, "--tokens", "1,2"}, 4, "it gives states of texts (ferry embed)"},
      {{"verify", made, "--checkpoint", source}, 2, "compared with a reference"},
      {{"embed", made, "--tokens", "1,2"}, 2, "give --states"},
      {{"embed", made, "--tokens", "64", "--states"}, 2, "outside of the vocabulary"},
      {{"embed", dir / "d", "--tokens", "1", "--states"}, 4, "which gives logits"}};
  for (const Refusal& refusal : refusals) {
    const Outcome outcome = run_ferry(refusal.line);
    EXPECT_EQ(outcome.code, refusal.code) << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.said), std::string::npos) << outcome.err;
  }
}

TEST(Encoders, ModulesThatAreNotSupportedAreRefusedByName) {
  const TempDir dir;
  const std::string source = with_tokenizer(dir);
  const auto change = [&](const std::string& file, const std::string& key, const Json& value) {
    const std::string before = read_bytes(source + "/" + file);
    Json document = Json::parse(before);
    document[key] = value;
    write_bytes(source + "/" + file, document.dump());
    const Outcome outcome = run_ferry({"convert", source, "-n"});
    write_bytes(source + "/" + file, before);
    return outcome;
  };
  const Outcome pooling = change("1_Pooling/config.json", "pooling_mode_max_tokens", true);
  EXPECT_EQ(pooling.code, 4);
  EXPECT_NE(pooling.err.find("'pooling_mode_max_tokens' asks for another pooling"),
            std::string::npos)
      << pooling.err;
  const Outcome function = change("2_Dense/config.json", "activation_function", "torch.nn.GELU");
  EXPECT_EQ(function.code, 4);
  EXPECT_NE(function.err.find("2_Dense/config.json: 'activation_function'"), std::string::npos);
  const Outcome width = change("3_Dense/config.json", "in_features", 25);
  EXPECT_EQ(width.code, 3);
  EXPECT_NE(width.err.find("3_Dense/config.json: 'in_features' is 25"), std::string::npos);
  const Outcome lower = change("sentence_bert_config.json", "do_lower_case", true);
  EXPECT_EQ(lower.code, 4);
  std::filesystem::remove(source + "/2_Dense/model.safetensors");
  EXPECT_EQ(run_ferry({"convert", source, "-n"}).code, 3);
}

// The vectors of a causal model are asked for.
TEST(Encoders, AFolderOfSentenceTransformersIsPointedOut) {
  const Outcome decoder = run_ferry({"convert", encoder("qwen3_causal"), "-n"});
  EXPECT_EQ(decoder.code, 0) << decoder.err;
  EXPECT_NE(decoder.err.find("--program encoder makes what gives its vectors"), std::string::npos)
      << decoder.err;
}

}  // namespace
}  // namespace ferry
