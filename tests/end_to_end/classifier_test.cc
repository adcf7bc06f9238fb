// Classifiers, end to end. The reference is transformers' classes with their heads.

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"
#include "tests/cli/schema_check.h"

namespace ferry::classifier_test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kFixtures = {
    "bert",  "deberta_v2",   "bert_tokens", "distilbert", "eurobert",
    "gpt2",  "llama_tokens", "modernbert",  "mpnet",      "modernbert_tokens",
    "qwen3", "roberta",      "nomic_bert"};

std::string classifier(const std::string& name) { return fixture("classifier/" + name); }

class Classifier : public testing::TestWithParam<std::string> {
 protected:
  void holds(const std::vector<std::string>& more) {
    const TempDir dir;
    const std::string source = classifier(GetParam());
    ASSERT_EQ(convert_encoder(source, dir / "b", more).code, 0);
    const Outcome verified = run_ferry({"verify", dir / "b", "--checkpoint", source, "--reference",
                                        source + "/golden.safetensors", "--json"});
    ASSERT_EQ(verified.code, 0) << verified.err;
    EXPECT_TRUE(schema_problems("verify.json", verified.json()).empty());
    const Json result = verified.json()["result"];
    const bool per_token = GetParam().ends_with("_tokens");
    for (const Json& prompt : result["cases"]) {
      EXPECT_TRUE(prompt["not_compared"].empty()) << prompt;
      EXPECT_EQ(prompt["layers"].back()["name"], per_token ? "token_logits" : "class_logits");
    }
    EXPECT_EQ(result["programs"]["different"], Json::array());
  }
};

TEST_P(Classifier, HasTheOutputsOfTheReference) { holds({"--dtype", "f32"}); }
TEST_P(Classifier, HasThemInParts) { holds({"--dtype", "f32", "--shards", "2"}); }
TEST_P(Classifier, HasThemInBF16) { holds({"--dtype", "bf16"}); }
TEST_P(Classifier, HasThemQuantised) { holds({"--quantize", "8da8w"}); }

INSTANTIATE_TEST_SUITE_P(All, Classifier, testing::ValuesIn(kFixtures),
                         [](const auto& test) { return test.param; });

TEST(Classifiers, AWrongOutputIsNoParity) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(classifier("bert"), dir / "b", {"--dtype", "f32"}).code, 0);
  TensorFile golden(classifier("bert") + "/golden.safetensors");
  const auto begin = golden.header["long.class_logits"]["data_offsets"][0].get<size_t>();
  const float wrong = 1.5F;
  golden.data.replace(begin, sizeof wrong, reinterpret_cast<const char*>(&wrong), sizeof wrong);
  golden.write(dir / "wrong.safetensors");
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", dir / "wrong.safetensors"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.err.find("the output (class_logits)"), std::string::npos) << verified.err;
}

struct ConfigChange {
  Json change;
  int code;
  std::string said;
};

TEST(Classifiers, WhatAConfigSaysIsObeyedOrRefusedByName) {
  const std::vector<ConfigChange> changes = {
      {{{"architectures", {"BertForMultipleChoice"}}}, 3, "unmapped: 'classifier.bias'"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, 4, "'architectures' is"},
      {{{"problem_type", "ranking"}}, 4, "'problem_type' is 'ranking'"},
      {{{"problem_type", "single_label_classification"}, {"id2label", {{"0", "x"}}}},
       3,
       "'problem_type' is single_label_classification"},
      {{{"id2label", {{"0", "x"}, {"2", "y"}}}}, 3, "'id2label' has 2 labels and no text for 1"},
      {{{"id2label", {{"0", "x"}, {"1", "y"}}}}, 3, "shape: 'classifier.weight'"},
      {{{"id2label", nullptr}, {"num_labels", 4}}, 3, "shape: 'classifier.weight'"},
      {{{"sentence_transformers", {{"activation_fn", "torch.nn.modules.activation.Tanh"}}}},
       4,
       "sentence_transformers.activation_fn"},
  };
  for (const ConfigChange& change : changes) {
    const TempDir dir;
    Json config = Json::parse(read_bytes(classifier("bert") + "/config.json"));
    config.update(change.change);
    write_bytes(dir / "config.json", config.dump());
    const Outcome made =
        run_ferry({"convert", classifier("bert"), "-n", "--config", dir / "config.json"});
    EXPECT_EQ(made.code, change.code) << change.change << made.err;
    EXPECT_NE(made.err.find(change.said), std::string::npos) << made.err;
  }
  EXPECT_EQ(run_ferry({"convert", classifier("qwen3"), "-n", "--program", "stateful"}).code, 4);
}

}  // namespace
}  // namespace ferry::classifier_test
