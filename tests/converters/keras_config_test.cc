// Configurations that KerasHub wrote, against those that transformers has for the same models.

#include "converters/adapters/keras/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "converters/config/model_config.h"

namespace ferry::converters::keras_config_test {
namespace {

using nlohmann::json;

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::filesystem::path preset(const std::string& name) {
  return std::filesystem::path(FERRY_TESTDATA) / "keras" / name;
}

json keras_config(const std::string& name) {
  return json::parse(read_all(preset(name) / "config.json"));
}

Result<std::string> translate(const json& config, bool own_head = false) {
  return hugging_face_config_of_keras(config.dump(), own_head, "config.json");
}

class KerasConfigTest : public testing::TestWithParam<std::string> {};

TEST_P(KerasConfigTest, SaysWhatTheConfigOfTheSameModelSays) {
  const json expected = json::parse(read_all(preset(GetParam()) / "huggingface.json"));
  const bool own_head = GetParam() == "llama";
  const Result<std::string> text = translate(keras_config(GetParam()), own_head);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const json made = json::parse(*text);
  for (const auto& [key, value] : made.items()) {
    // Keras does not state it; Gemma 1 and 2 and the unscaled Qwen 2 leave these to defaults.
    if (key == "max_position_embeddings") continue;
    if (!expected.contains(key)) {
      EXPECT_TRUE(key == "layer_types" || (key == "rope_scaling" && value.is_null()) ||
                  (key == "head_dim" && GetParam() == "qwen2"))
          << key;
      continue;
    }
    EXPECT_EQ(value, expected[key]) << key;
  }
  // What is only in the other has no number of the model.
  const std::set<std::string> left_out = {
      "architectures", "attention_bias", "mlp_bias",     "hidden_act",   "torch_dtype",
      "bos_token_id",  "eos_token_id",   "pad_token_id", "rope_scaling", "sliding_window_pattern"};
  for (const auto& [key, value] : expected.items()) {
    EXPECT_TRUE(made.contains(key) || left_out.contains(key)) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, KerasConfigTest,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "gemma", "gemma2",
                                         "gemma3", "gemma3_deep"),
                         [](const auto& test) { return test.param; });

TEST(KerasConfig, IsToldFromAHuggingFaceConfig) {
  EXPECT_TRUE(is_keras_config(keras_config("qwen3").dump()));
  EXPECT_FALSE(is_keras_config(read_all(preset("qwen3") / "huggingface.json")));
  for (const char* text : {"", "[]", "{}", "{\"class_name\": \"X\"}", "nonsense"}) {
    EXPECT_FALSE(is_keras_config(text)) << text;
  }
}

TEST(KerasConfig, TheWeightsDecideWhereLlamaDoesNotSayWhetherItIsTied) {
  json config = keras_config("llama3");
  EXPECT_EQ(json::parse(*translate(config, false))["tie_word_embeddings"], true);
  EXPECT_EQ(json::parse(*translate(config, true))["tie_word_embeddings"], false);
  config["config"]["tie_word_embeddings"] = true;
  EXPECT_EQ(json::parse(*translate(config, true))["tie_word_embeddings"], true);
}

TEST(KerasConfig, PackagesOfOlderVersionsAreKnown) {
  json config = keras_config("llama");
  config["registered_name"] = "keras_nlp>LlamaBackbone";
  config["config"].erase("rope_position_scaling_factor");
  config["config"]["rope_scaling_factor"] = 2.5;
  const json made = json::parse(*translate(config));
  EXPECT_EQ(made["rope_scaling"], json({{"rope_type", "linear"}, {"factor", 2.5}}));
}

TEST(KerasConfig, SlidingWindowsFollowTheBackbone) {
  json config = keras_config("qwen2");
  config["config"]["use_sliding_window_attention"] = true;
  config["config"]["sliding_window_size"] = 7;
  ModelConfig parsed = *parse_model_config(*translate(config), "", "config.json");
  EXPECT_EQ(parsed.sliding_window, 7);
  EXPECT_EQ(parsed.layer_types, std::vector(2, LayerType::kSlidingAttention));

  config = keras_config("qwen3");
  config["config"]["sliding_window_size"] = 9;
  parsed = *parse_model_config(*translate(config), "", "config.json");
  EXPECT_EQ(parsed.sliding_window, 9);
  EXPECT_EQ(parsed.layer_types, std::vector(2, LayerType::kSlidingAttention));
}

TEST(KerasConfig, GemmaScalesQueriesByTheShareOfTheHiddenSizeWhereItSaysSo) {
  json config = keras_config("gemma2");
  config["config"]["query_head_dim_normalize"] = false;
  EXPECT_EQ(json::parse(*translate(config))["query_pre_attn_scalar"], 6);
}

struct Refusal {
  const char* preset;
  const char* patch;  // merged into the configuration
  ErrorCode code;
  const char* message;  // a part of it
};
constexpr ErrorCode kBad = ErrorCode::kBadInput;
constexpr ErrorCode kNot = ErrorCode::kUnsupported;

const Refusal kRefusals[] = {
    {"llama", R"({"class_name": "BertBackbone"})", kNot,
     "'class_name' is 'BertBackbone', which is not supported; supported are GemmaBackbone, "
     "Gemma3Backbone, LlamaBackbone, Llama3Backbone, QwenBackbone, Qwen3Backbone"},
    {"llama", R"({"class_name": "Functional"})", kNot, "'Functional'"},
    {"llama", R"({"class_name": 7})", kBad, "'class_name' is not a string"},
    {"llama", R"({"class_name": null})", kBad, "'class_name' is missing"},
    {"llama", R"({"registered_name": "mine>LlamaBackbone"})", kNot, "'registered_name'"},
    {"llama", R"({"config": null})", kBad, "'config' is missing"},
    {"llama", R"({"config": 3})", kBad, "'config' is not an object"},
    {"llama", R"({"config": {"num_layers": null}})", kBad, "'config.num_layers' is missing"},
    {"llama", R"({"config": {"num_layers": 0}})", kBad, "'config.num_layers' is 0"},
    {"llama", R"({"config": {"num_layers": 2.0}})", kBad, "'config.num_layers' is not an integer"},
    {"llama", R"({"config": {"vocabulary_size": -1}})", kBad, "'config.vocabulary_size'"},
    {"llama", R"({"config": {"hidden_dim": 99999999999}})", kBad, "'config.hidden_dim'"},
    {"llama", R"({"config": {"num_query_heads": 5, "num_key_value_heads": 5}})", kBad,
     "does not divide hidden_dim 24"},
    {"llama", R"({"config": {"num_key_value_heads": 3}})", kBad, "does not divide 4 heads"},
    {"llama", R"({"config": {"layer_norm_epsilon": "tiny"}})", kBad, "layer_norm_epsilon"},
    {"llama3", R"({"config": {"rope_low_freq_factor": null}})", kBad,
     "'config.rope_low_freq_factor' is missing beside the other three"},
    {"llama3", R"({"config": {"rope_position_scaling_factor": 2}})", kNot,
     "together with a frequency scaling"},
    {"llama", R"({"config": {"attention_sinks": 4}})", kNot,
     "'config.attention_sinks' is not known for LlamaBackbone"},
    {"llama", R"({"config": {"dtype": {"class_name": "QuantizedDTypePolicy",
                                       "config": {"mode": "int8"}}}})",
     kNot, "'config.dtype' is quantised"},
    {"qwen3", R"({"config": {"dtype": "int8_from_bfloat16"}})", kNot,
     "'config.dtype' is quantised"},
    {"qwen3", R"({"config": {"head_dim": null}})", kBad, "'config.head_dim' is missing"},
    {"gemma", R"({"config": {"intermediate_dim": 71}})", kBad, "twice the width of the MLP"},
    {"gemma", R"({"config": {"use_post_ffw_norm": true}})", kNot, "use_post_attention_norm"},
    {"gemma", R"({"config": {"final_logit_soft_cap": 30.0}})", kNot, "is set in a Gemma 1"},
    {"gemma", R"({"config": {"use_sliding_window_attention": true}})", kNot, "in a Gemma 1"},
    {"gemma2", R"({"config": {"attention_logit_soft_cap": 0}})", kBad, "attention_logit_soft_cap"},
    {"gemma3", R"({"config": {"vision_encoder": {}}})", kNot, "only text backbones"},
    {"gemma3", R"({"config": {"use_bidirectional_attention": true}})", kNot, "is true"},
    {"gemma3", R"({"config": {"use_query_key_norm": false}})", kNot, "use_query_key_norm"},
    {"gemma3", R"({"config": {"local_rope_scaling_factor": 2}})", kNot, "is not 1"},
};

TEST(KerasConfig, WhatIsNotKnownOrWrongIsRefusedUnderItsOwnName) {
  for (const Refusal& refusal : kRefusals) {
    json config = keras_config(refusal.preset);
    // merge_patch would take null for "remove", which is meant here too.
    config.merge_patch(json::parse(refusal.patch));
    const Result<std::string> text = translate(config);
    ASSERT_FALSE(text.has_value()) << refusal.patch;
    EXPECT_EQ(text.error().code, refusal.code) << refusal.patch;
    EXPECT_TRUE(text.error().message.starts_with("config.json: ")) << text.error().message;
    EXPECT_NE(text.error().message.find(refusal.message), std::string::npos)
        << text.error().message;
  }
}

TEST(KerasConfig, OptionsThatAreOffNeedNotBeKnown) {
  json config = keras_config("llama");
  config["config"]["future_option"] = false;
  config["config"]["other_option"] = nullptr;
  EXPECT_TRUE(translate(config).has_value());
}

}  // namespace
}  // namespace ferry::converters::keras_config_test
