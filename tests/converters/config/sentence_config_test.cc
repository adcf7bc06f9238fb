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
  EXPECT_EQ(config.poolings, std::vector{SentenceConfig::Pooling::kMean});
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

TEST_F(SentenceConfigTest, PoolingsAreThoseThatAreKnown) {
  using Pooling = SentenceConfig::Pooling;
  const auto poolings = [this](const char* text) {
    files_["1_Pooling/config.json"] = text;
    const auto parsed = parse();
    return parsed ? (*parsed)->poolings : std::vector<Pooling>();
  };
  const std::vector<Pooling> none, mean = {Pooling::kMean};
  EXPECT_EQ(poolings("{}"), mean);  // the default of the module
  EXPECT_EQ(poolings(R"({"pooling_mode_mean_tokens": false})"), mean);
  EXPECT_EQ(poolings(R"({"pooling_mode": "cls"})"), std::vector{Pooling::kFirst});
  EXPECT_EQ(poolings(R"({"pooling_mode": "lasttoken"})"), std::vector{Pooling::kLast});
  EXPECT_EQ(poolings(R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})"),
            std::vector{Pooling::kLast});
  EXPECT_EQ(poolings(R"({"pooling_mode_cls_token": true})"), std::vector{Pooling::kFirst});
  EXPECT_EQ(poolings(R"({"pooling_mode": "max"})"), std::vector{Pooling::kMax});
  // Flags have an order of their own; a list is taken as it stands.
  EXPECT_EQ(poolings(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})"),
            (std::vector{Pooling::kFirst, Pooling::kMean}));
  EXPECT_EQ(poolings(R"({"pooling_mode": ["mean", "cls"]})"),
            (std::vector{Pooling::kMean, Pooling::kFirst}));
  EXPECT_EQ(poolings(R"({"pooling_mode": []})"), none);
  EXPECT_EQ(poolings(R"({"pooling_mode": ["mean", "median"]})"), none);
  EXPECT_EQ(poolings(R"({"pooling_mode": "median"})"), none);
  EXPECT_EQ(poolings(R"({"include_prompt": false})"), none);
  EXPECT_EQ(poolings(R"({"word_embedding_dimension": 8})"), mean);
  EXPECT_EQ(poolings(R"({"word_embedding_dimension": "8"})"), none);
}

TEST_F(SentenceConfigTest, TheTokenizerLimitsTextsWhereTheModuleDoesNot) {
  const auto limit = [this](const char* module, const char* tokenizer) {
    files_["sentence_bert_config.json"] = module;
    files_["tokenizer_config.json"] = tokenizer;
    return (*parse())->max_tokens;
  };
  EXPECT_EQ(limit(R"({"max_seq_length": 77})", R"({"model_max_length": 40})"), 77);
  EXPECT_EQ(limit("{}", R"({"model_max_length": 40})"), 40);
  EXPECT_EQ(limit("{}", R"({"model_max_length": 1000000000000000019884624838656})"), std::nullopt);
  EXPECT_EQ(limit("{}", "{}"), std::nullopt);
}

TEST_F(SentenceConfigTest, OtherTasksOfATransformerAreRefused) {
  files_["sentence_bert_config.json"] =
      R"({"transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
          "modality_config": {"text": {"method": "forward",
                                       "method_output_name": "last_hidden_state"}}})";
  EXPECT_TRUE(parse());
  const std::string usual = R"({"method": "forward", "method_output_name": "last_hidden_state"})";
  const auto encodes = [&](const std::string& modalities) {
    files_["sentence_bert_config.json"] = R"({"modality_config": {)" + modalities + "}}";
    return parse().has_value();
  };
  EXPECT_TRUE(encodes(R"("text": )" + usual + R"(, "image": {"method": "get_image_features"})"));
  EXPECT_FALSE(encodes(R"("text": )" + usual + R"(, "message": )" + usual));
  EXPECT_FALSE(encodes(R"("text": {"method": "get_text_features"})"));
  EXPECT_FALSE(encodes(R"("image": )" + usual));
  files_["sentence_bert_config.json"] = R"({"transformer_task": "fill-mask"})";
  EXPECT_EQ(refusal(),
            R"(folder/sentence_bert_config.json: 'transformer_task' is not "feature-extraction")");
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
