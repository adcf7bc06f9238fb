#include "converters/config/sentence_config.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ferry::converters::sentence_config_test {
namespace {

// The files of a folder, by their paths.
class SentenceConfigTest : public testing::Test {
 protected:
  std::map<std::string, std::string> files_ = {
      {"modules.json",
       R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
           {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
           {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
           {"idx": 3, "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}])"},
      {"sentence_bert_config.json", R"({"max_seq_length": 77})"},
      {"1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})"},
      {"2_Dense/config.json",
       R"({"in_features": 8, "out_features": 4, "bias": false,
           "activation_function": "torch.nn.modules.linear.Identity"})"}};

  Result<std::optional<SentenceConfig>> parse() const {
    const FolderText text = [this](const std::string& path) -> Result<std::optional<std::string>> {
      const auto found = files_.find(path);
      return found == files_.end() ? std::nullopt : std::optional(found->second);
    };
    return parse_sentence_config(text, "folder");
  }
  std::string refusal() const {
    const auto parsed = parse();
    return parsed ? "accepted" : parsed.error().message;
  }
};

TEST_F(SentenceConfigTest, ModulesAreReadInOrder) {
  const auto parsed = parse();
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_TRUE(*parsed);
  const SentenceConfig& config = **parsed;
  EXPECT_EQ(config.pooling, SentenceConfig::Pooling::kMean);
  EXPECT_EQ(config.max_tokens, 77);
  ASSERT_EQ(config.modules.size(), 2U);
  const SentenceModule dense = {.kind = SentenceModule::Kind::kDense,
                                .folder = "2_Dense",
                                .in = 8,
                                .out = 4,
                                .bias = false,
                                .function = SentenceModule::Function::kIdentity};
  EXPECT_EQ(config.modules[0], dense);
  EXPECT_EQ(config.modules[1].kind, SentenceModule::Kind::kNormalize);
  EXPECT_EQ(config.width(8), 4);
}

TEST_F(SentenceConfigTest, AFolderWithoutModulesIsNone) {
  files_.erase("modules.json");
  const auto parsed = parse();
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(*parsed);
}

TEST_F(SentenceConfigTest, PoolingIsOneThatIsKnown) {
  const auto pooling = [this](const char* text) {
    files_["1_Pooling/config.json"] = text;
    const auto parsed = parse();
    return parsed ? std::optional((*parsed)->pooling) : std::nullopt;
  };
  using Pooling = SentenceConfig::Pooling;
  EXPECT_EQ(pooling("{}"), Pooling::kMean);  // the default of the module
  EXPECT_EQ(pooling(R"({"pooling_mode": "cls"})"), Pooling::kFirst);
  EXPECT_EQ(pooling(R"({"pooling_mode": "lasttoken"})"), Pooling::kLast);
  EXPECT_EQ(pooling(R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})"),
            Pooling::kLast);
  // The mean is on by default as well.
  EXPECT_FALSE(pooling(R"({"pooling_mode_cls_token": true})"));
  EXPECT_EQ(pooling(R"({"pooling_mode": "max"})"), Pooling::kMax);
  EXPECT_FALSE(pooling(R"({"pooling_mode": "median"})"));
  EXPECT_FALSE(pooling(R"({"include_prompt": false})"));
  EXPECT_EQ(pooling(R"({"word_embedding_dimension": 8})"), Pooling::kMean);
  EXPECT_FALSE(pooling(R"({"word_embedding_dimension": "8"})"));
}

TEST_F(SentenceConfigTest, WhatWouldChangeTheVectorIsRefused) {
  const auto modules = files_["modules.json"];
  const auto refuses = [&](const std::string& from, const std::string& to) {
    std::string changed = modules;
    changed.replace(changed.find(from), from.size(), to);
    files_["modules.json"] = changed;
    return refusal();
  };
  EXPECT_NE(refuses("2_Dense", "../secret").find("not the plain name of a folder"),
            std::string::npos);
  EXPECT_NE(refuses("models.Dense", "models.LSTM")
                .find("module 2 is "
                      "'sentence_transformers.models.LSTM'"),
            std::string::npos);
  EXPECT_NE(refuses("\"path\": \"\"", "\"path\": \"0\"").find("in the folder '0'"),
            std::string::npos);
  EXPECT_NE(refuses("models.Pooling", "models.Normalize").find("module 1 is"), std::string::npos);
  EXPECT_NE(refuses("[{", "{\"a\": {").find("modules.json"), std::string::npos);
  files_["modules.json"] = "{}";
  EXPECT_EQ(refusal(), "folder/modules.json: not a JSON list");
  files_["modules.json"] = "[]";
  EXPECT_NE(refusal().find("has no pooling"), std::string::npos);
}

}  // namespace
}  // namespace ferry::converters::sentence_config_test
