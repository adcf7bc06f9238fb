// ferry classify. The reference are the pipelines of transformers, as answers.json has them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/cli/checkpoints.h"
#include "tests/cli/schema_check.h"

namespace ferry::verb_classify_test {
namespace {

using Json = nlohmann::json;

std::string bundle_of(const TempDir& dir, const std::string& name) {
  const std::string source = fixture("classifier/" + name), made = dir / name;
  EXPECT_EQ(convert_encoder(source, made, {"--dtype", "f32"}).code, 0);
  return made;
}
Json answers_of(const std::string& name) {
  return Json::parse(read_bytes(fixture("classifier/" + name) + "/answers.json"));
}

// Scores may differ by rounding; all else is equal.
void expect_same(const Json& got, const Json& want) {
  ASSERT_EQ(got.size(), want.size()) << got << want;
  for (size_t i = 0; i < want.size(); ++i) {
    for (const auto& [key, value] : want[i].items()) {
      if (key == "score") {
        EXPECT_NEAR(got[i][key].get<double>(), value.get<double>(), 1e-5);
      } else {
        EXPECT_EQ(got[i][key], value) << got[i] << want[i];
      }
    }
  }
}

TEST(Classify, GivesTheLabelsOfTexts) {
  const TempDir dir;
  const std::string bundle = bundle_of(dir, "bert");
  const Json answers = answers_of("bert");
  for (const Json& row : answers["texts"]) {
    const Outcome outcome =
        run_ferry({"classify", bundle, "--text", row[0].get<std::string>(), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(schema_problems("classify.json", outcome.json()).empty());
    expect_same(outcome.json()["result"]["texts"][0]["labels"], row[1]);
  }
}

// The last pair has more tokens than the context of 16.
TEST(Classify, GivesTheLabelsOfPairs) {
  const TempDir dir;
  const std::string bundle = bundle_of(dir, "bert"), small = dir / "small";
  const std::string source = fixture("classifier/bert");
  ASSERT_EQ(convert_encoder(source, small, {"--dtype", "f32", "--context-length", "16"}).code, 0);
  const Json answers = answers_of("bert");
  std::string lines;
  for (size_t i = 0; i < answers["pairs"].size(); ++i) {
    const Json &row = answers["pairs"][i], &cut = answers["cut"][i];
    lines += row[0].dump() + "\n";
    const std::vector<std::string> pair = {"--text", row[0][0], "--pair", row[0][1]};
    std::vector<std::string> line = {"classify", bundle};
    line.insert(line.end(), pair.begin(), pair.end());
    expect_same(Json::parse(run_ferry(line).out), row[1]);
    line = {"classify", small, "--truncate"};
    line.insert(line.end(), pair.begin(), pair.end());
    expect_same(Json::parse(run_ferry(line).out), cut[1]);
  }
  const Outcome all = run_ferry_on(lines, {"classify", bundle, "--json"});
  for (size_t i = 0; i < answers["pairs"].size(); ++i) {
    const Json text = all.json()["result"]["texts"][i];
    expect_same(text["labels"], answers["pairs"][i][1]);
    EXPECT_EQ(text["tokens"], answers["ids"][i]["input_ids"].size());
  }
  EXPECT_EQ(run_ferry_on(lines, {"classify", small}).code, 2);
}

TEST(Classify, FindsTheWordsOfTexts) {
  const TempDir dir;
  const std::string bundle = bundle_of(dir, "bert_tokens");
  const Json answers = answers_of("bert_tokens");
  for (const auto& [how, rows] : answers.items()) {
    for (const Json& row : rows) {
      const Outcome outcome = run_ferry({"classify", bundle, "--text", row[0].get<std::string>(),
                                         "--aggregation", how, "--json"});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_TRUE(schema_problems("classify.json", outcome.json()).empty());
      expect_same(outcome.json()["result"]["texts"][0]["entities"], row[1]);
    }
  }
}

// One label: a sigmoid, or what the config of a CrossEncoder says. Several labels of one text: a
// sigmoid for each. A regression: the output.
TEST(Classify, ScoresAreThoseOfTheConfig) {
  const TempDir dir;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const std::string name : {"roberta", "distilbert", "nomic_bert"}) {
    const std::string bundle = bundle_of(dir, name);
    const Json outputs =
        Json::parse(run_ferry({"classify", bundle, "--tokens", "7,8,9", "--logits"}).out);
    const Json labels = Json::parse(run_ferry({"classify", bundle, "--tokens", "7,8,9"}).out);
    ASSERT_EQ(labels.size(), outputs.size());
    for (const Json& label : labels) {
      const size_t number = std::stoul(label["label"].get<std::string>().substr(6));
      const double output = outputs[number];
      const double want = name == "nomic_bert" ? output : sigmoid(output);
      EXPECT_NEAR(label["score"].get<double>(), want, 1e-6);
    }
  }
  const std::string source = dir / "cross";
  std::filesystem::copy(fixture("classifier/roberta"), source);
  write_bytes(
      source + "/config_sentence_transformers.json",
      R"({"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity"})");
  ASSERT_EQ(convert_encoder(source, dir / "plain", {}).code, 0);
  const Json plain = Json::parse(run_ferry({"classify", dir / "plain", "--tokens", "7,8"}).out);
  const Json output =
      Json::parse(run_ferry({"classify", dir / "plain", "--tokens", "7,8", "--logits"}).out);
  EXPECT_EQ(plain[0]["score"], output[0]);

  // A CrossEncoder that states no activation has a sigmoid for one label, and else none.
  const std::string several = dir / "several";
  std::filesystem::copy(fixture("classifier/bert"), several);
  write_bytes(several + "/config_sentence_transformers.json", R"({"model_type": "CrossEncoder"})");
  ASSERT_EQ(convert_encoder(several, dir / "bare", {}).code, 0);
  const Json bare = Json::parse(run_ferry({"classify", dir / "bare", "--tokens", "7,8"}).out);
  const Json outputs =
      Json::parse(run_ferry({"classify", dir / "bare", "--tokens", "7,8", "--logits"}).out);
  EXPECT_EQ(bare[0]["score"], *std::ranges::max_element(outputs));
}

// If every mark were compared with all marks behind it, this would exceed the limit of a test.
TEST(Classify, ATextOfMarksIsReadInLinearTime) {
  const TempDir dir;
  const std::string bundle = bundle_of(dir, "bert_tokens");
  std::string text = "a";
  for (int i = 0; i < 150000; ++i) text += "\u0301";
  const Outcome outcome = run_ferry_on(text, {"classify", bundle, "--plain"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out).size(), 1u);
}

struct Refusal {
  std::vector<std::string> line;
  int code;
  std::string said;
};

TEST(Classify, WhatItCannotDoIsRefused) {
  const TempDir dir;
  const std::string texts = bundle_of(dir, "bert"), words = bundle_of(dir, "bert_tokens");
  ASSERT_EQ(convert_encoder(encoder("roberta"), dir / "e", {}).code, 0);
  const std::vector<Refusal> refusals = {
      {{"classify", dir / "e", "--tokens", "4"}, 4, "is no classifier"},
      {{"classify", texts, "--text", "a", "--aggregation", "none"}, 2, "classifiers of tokens"},
      {{"classify", words, "--text", "a", "--aggregation", "most"}, 2, "--aggregation: must be"},
      {{"classify", words, "--text", "a", "--top", "1"}, 2, "classifiers of texts"},
      {{"classify", texts, "--text", "a", "--top", "0"}, 2, "--top"},
      {{"classify", texts, "--text", "a", "--scores", "cosine"}, 2, "--scores: must be"},
      {{"classify", texts, "--pair", "a"}, 2, "--pair: 1 for 0 --text"},
      {{"classify", texts, "--tokens", "4", "--types", "0,1"}, 2, "--types: 2 for 1 tokens"},
      {{"classify", texts, "--tokens", "4", "--types", "7"}, 2, "--types: 7; a type is 0 or 1"},
      {{"classify", texts, "--tokens", "400"}, 2, "outside of the vocabulary"},
      {{"classify", words, "--tokens", "4"}, 2, "give --logits"}};
  for (const Refusal& refusal : refusals) {
    const Outcome outcome = run_ferry(refusal.line);
    EXPECT_EQ(outcome.code, refusal.code) << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.said), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_ferry_on("[\"a\"]\n", {"classify", texts}).code, 3);
}

}  // namespace
}  // namespace ferry::verb_classify_test
