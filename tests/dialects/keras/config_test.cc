// Configurations that KerasHub wrote, compared with those that transformers has for the same
// models.

#include "dialects/keras/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/family.h"

namespace ferry::converters::config_test {
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
    // Keras does not state max_position_embeddings. Gemma 1 and 2 and the unscaled Qwen 2 of
    // transformers leave the keys below to defaults.
    if (key == "max_position_embeddings") continue;
    if (!expected.contains(key)) {
      EXPECT_TRUE(key == "layer_types" || (key == "rope_scaling" && value.is_null()) ||
                  (key == "head_dim" && GetParam() == "qwen2"))
          << key;
      continue;
    }
    EXPECT_EQ(value, expected[key]) << key;
  }
  // These keys of transformers hold no number of the model.
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

// The config.json of these classes was written by transformers 5 for the same model.
class KerasClassTest : public testing::TestWithParam<std::string> {};

TEST_P(KerasClassTest, IsTheModelOfTheHuggingFaceConfig) {
  const Result<std::string> text = translate(keras_config(GetParam()));
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const auto made = parse_model_config(*text, "", "config.json");
  ASSERT_TRUE(made.has_value()) << made.error().message;
  auto expected =
      parse_model_config(read_all(preset(GetParam()) / "huggingface.json"), "", "huggingface.json");
  ASSERT_TRUE(expected.has_value()) << expected.error().message;
  // Not all Keras classes state the number of positions. All of them state whether the head is
  // tied.
  const std::set<std::string> stating = {"phi3", "smollm3", "gpt2", "opt", "gpt_neox"};
  if (!stating.contains(GetParam())) expected->max_positions = made->max_positions;
  expected->tie_unless_stored = made->tie_unless_stored;
  EXPECT_TRUE(*made == *expected);
}

INSTANTIATE_TEST_SUITE_P(Presets, KerasClassTest,
                         testing::Values("mistral", "phi3", "smollm3", "mixtral", "qwen2_moe",
                                         "qwen3_moe", "gpt_oss", "qwen3_5", "qwen3_5_moe", "gpt2",
                                         "opt", "gpt_neox"),
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

TEST(KerasConfig, AWindowThatIsNotStatedIsThatOfTheClass) {
  const struct {
    const char *preset, *key;
    int64_t window;
  } cases[] = {{"mistral", "sliding_window", 512},
               {"mixtral", "sliding_window", 512},
               {"qwen3_moe", "sliding_window_size", 32768},
               {"gpt_oss", "sliding_window", 4097}};
  for (const auto& each : cases) {
    json config = keras_config(each.preset);
    config["config"].erase(each.key);
    EXPECT_EQ(parse_model_config(*translate(config), "", "config.json")->sliding_window,
              each.window);
    config["config"][each.key] = nullptr;
    EXPECT_EQ(parse_model_config(*translate(config), "", "config.json")->sliding_window,
              std::nullopt);
  }
}

// In the original the layers 0, 2, ... have windows, and the window counts the token itself.
TEST(KerasConfig, WindowsOfGptOssAreThoseOfKerasHub) {
  json config = keras_config("gpt_oss");
  config["config"]["num_layers"] = 4;
  const ModelConfig parsed = *parse_model_config(*translate(config), "", "config.json");
  const LayerType full = LayerType::kFullAttention, slides = LayerType::kSlidingAttention;
  EXPECT_EQ(parsed.layer_types, (std::vector{full, slides, full, slides}));
  EXPECT_EQ(parsed.sliding_window, 10);
  config["config"]["sliding_window"] = 0;
  EXPECT_EQ(parse_model_config(*translate(config), "", "config.json")->layer_types,
            std::vector(4, full));
}

TEST(KerasConfig, AVisionEncoderOfQwen35IsLeftOut) {
  json config = keras_config("qwen3_5");
  const Result<std::string> text = translate(config);
  config["config"]["vision_encoder"] = {{"class_name", "Qwen3_5VisionEncoder"}};
  config["config"]["mrope_section"] = {1, 1, 0};
  EXPECT_EQ(*translate(config), *text);
}

TEST(KerasConfig, EveryFourthLayerOfQwen35HasAttentionByDefault) {
  json config = keras_config("qwen3_5");
  config["config"]["num_layers"] = 5;
  config["config"]["layer_types"] = nullptr;
  const ModelConfig parsed = *parse_model_config(*translate(config), "", "config.json");
  std::vector types(5, LayerType::kLinearAttention);
  types[3] = LayerType::kFullAttention;
  EXPECT_EQ(parsed.layer_types, types);
}

TEST(KerasConfig, AYarnFactorOfOneScalesNothing) {
  json config = keras_config("gpt_oss");
  config["config"]["rope_scaling_factor"] = 1;
  const ModelConfig parsed = *parse_model_config(*translate(config), "", "config.json");
  EXPECT_EQ(parsed.rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(parsed.rope.theta, 150000.0);
}

TEST(KerasConfig, TheSizeOfAHeadMayBeLeftOut) {
  for (const char* name : {"mistral", "qwen3_moe", "gpt_oss"}) {
    json config = keras_config(name);
    config["config"]["head_dim"] = nullptr;
    config["config"]["rope_scaling_factor"] = 1.0;
    EXPECT_EQ(json::parse(*translate(config))["head_dim"], 4) << name;
  }
}

TEST(KerasConfig, LayersBehindTheListHaveRope) {
  json config = keras_config("smollm3");
  config["config"]["rope_layer_enabled_list"] = {false};
  EXPECT_EQ(json::parse(*translate(config))["no_rope_layers"], json({0, 1, 1}));
}

TEST(KerasConfig, GemmaScalesQueriesByTheShareOfTheHiddenSizeWhereItSaysSo) {
  json config = keras_config("gemma2");
  config["config"]["query_head_dim_normalize"] = false;
  EXPECT_EQ(json::parse(*translate(config))["query_pre_attn_scalar"], 6);
}

struct Refusal {
  const char* preset;
  const char* patch;  // merge patch of the configuration
  ErrorCode code;
  const char* message;  // a part of the message
};
constexpr ErrorCode kBad = ErrorCode::kBadInput;
constexpr ErrorCode kNot = ErrorCode::kUnsupported;

const Refusal kRefusals[] = {
    {"llama", R"({"class_name": "BertBackbone"})", kNot,
     "'class_name' is 'BertBackbone', which is not supported; supported are GemmaBackbone, "
     "Gemma3Backbone, LlamaBackbone, Llama3Backbone, QwenBackbone, Qwen3Backbone, "
     "MistralBackbone, Phi3Backbone, SmolLM3Backbone, MixtralBackbone, QwenMoeBackbone, "
     "Qwen3MoeBackbone, GptOssBackbone, Qwen3_5Backbone, Qwen3_5MoeBackbone, GPT2Backbone, "
     "OPTBackbone, GPTNeoXBackbone"},
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
    {"mistral", R"({"config": {"use_bias": true}})", kNot,
     "'config.use_bias' is not known for MistralBackbone"},
    {"mistral", R"({"config": {"sliding_window": 0}})", kBad, "'config.sliding_window' is 0"},
    {"mistral", R"({"config": {"head_dim": null, "num_query_heads": 6}})", kBad,
     "does not divide hidden_dim 16"},
    {"mistral", R"({"config": {"tie_word_embeddings": true}})", kNot,
     "'config.tie_word_embeddings' is not known"},
    {"phi3", R"({"config": {"rope_scaling_type": "yarn"}})", kNot,
     "'config.rope_scaling_type' is 'yarn'; su and null are supported"},
    {"phi3", R"({"config": {"rope_scaling_type": null}})", kBad,
     "'config.rope_scaling_short_factor' is set without"},
    {"phi3", R"({"config": {"rope_scaling_long_factor": [1, 2, 3]}})", kBad,
     "'config.rope_scaling_long_factor' has 3 numbers for heads of 4"},
    {"phi3", R"({"config": {"rope_scaling_long_factor": null}})", kBad, "is missing"},
    {"phi3", R"({"config": {"rope_scaling_factor": 2}})", kNot,
     "'config.rope_scaling_factor' is not known for Phi3Backbone"},
    {"smollm3", R"({"config": {"attention_bias": true}})", kNot, "'config.attention_bias' is true"},
    {"smollm3", R"({"config": {"partial_rotary_factor": 0.5}})", kNot,
     "'config.partial_rotary_factor' is not 1"},
    {"smollm3", R"({"config": {"layer_types": ["full_attention", "sliding_attention"]}})", kNot,
     "'config.layer_types' has layers other than 'full_attention'"},
    {"smollm3", R"({"config": {"layer_types": null}})", kBad, "'config.layer_types'"},
    {"smollm3", R"({"config": {"rope_layer_enabled_list": [true, 2]}})", kBad,
     "has 2 as element 1"},
    {"smollm3", R"({"config": {"rope_layer_enabled_list": true}})", kBad, "is not a list"},
    {"mixtral", R"({"config": {"top_k": 5}})", kBad, "'config.top_k' is 5 of 4 experts"},
    {"mixtral", R"({"config": {"num_experts": 0}})", kBad, "'config.num_experts' is 0"},
    {"mixtral", R"({"config": {"head_dim": 8}})", kNot, "'config.head_dim' is not known"},
    {"qwen2_moe", R"({"config": {"mlp_only_layers": [1]}})", kNot,
     "'config.mlp_only_layers' is not empty"},
    {"qwen2_moe", R"({"config": {"decoder_sparse_step": 2}})", kNot,
     "'config.decoder_sparse_step' is not 1"},
    {"qwen2_moe", R"({"config": {"shared_expert_intermediate_dim": null}})", kBad, "is missing"},
    {"qwen3_moe", R"({"config": {"moe_intermediate_dim": null}})", kBad, "is missing"},
    {"qwen3_moe", R"({"config": {"mlp_only_layers": ["x"]}})", kBad, "mlp_only_layers"},
    {"qwen3_moe", R"({"config": {"num_shared_experts": 2}})", kNot, "num_shared_experts"},
    {"gpt_oss", R"({"config": {"rope_scaling_factor": 0.5}})", kNot,
     "'config.rope_scaling_factor' is below 1"},
    {"gpt_oss", R"({"config": {"rope_max_wavelength": 100, "head_dim": 16}})", kNot,
     "'config.rope_max_wavelength' is 100, too small"},
    {"qwen3_5", R"({"config": {"sliding_window_size": 64}})", kNot,
     "'config.sliding_window_size' is 64: Qwen 3.5 has no sliding window"},
    {"qwen3_5", R"({"config": {"layer_types": ["full_attention"]}})", kBad,
     "'config.layer_types' is no list of 2 layers"},
    {"qwen3_5", R"({"config": {"layer_types": ["full_attention", "sliding_attention"]}})", kBad,
     "element 1"},
    {"qwen3_5", R"({"config": {"linear_conv_kernel_dim": 0}})", kBad, "linear_conv_kernel_dim"},
    {"qwen3_5", R"({"config": {"attention_gate": "x"}})", kNot, "'config.attention_gate'"},
    {"qwen3_5_moe", R"({"config": {"intermediate_dim": 24}})", kNot, "'config.intermediate_dim'"},
    {"gpt2", R"({"config": {"num_heads": 3}})", kBad, "'config.num_heads' is 3"},
    {"gpt2", R"({"config": {"num_query_heads": 4}})", kNot, "'config.num_query_heads'"},
    {"gpt2", R"({"config": {"layer_norm_epsilon": 1e-6}})", kNot,
     "'config.layer_norm_epsilon' is not known for GPT2Backbone"},
    {"opt", R"({"config": {"max_sequence_length": 0}})", kBad, "'config.max_sequence_length' is 0"},
    {"gpt_neox", R"({"config": {"rotary_percentage": 1.5}})", kBad, "rotary_percentage"},
    {"gpt_neox", R"({"config": {"rotary_max_wavelength": "x"}})", kBad, "rotary_max_wavelength"},
};

TEST(KerasConfig, WhatIsNotKnownOrWrongIsRefusedUnderItsOwnName) {
  for (const Refusal& refusal : kRefusals) {
    json config = keras_config(refusal.preset);
    // merge_patch() takes null as "remove", which is intended here.
    config.merge_patch(json::parse(refusal.patch));
    const Result<std::string> text = translate(config);
    ASSERT_FALSE(text.has_value()) << refusal.patch;
    EXPECT_EQ(text.error().code, refusal.code) << refusal.patch;
    EXPECT_TRUE(text.error().message.starts_with("config.json: ")) << text.error().message;
    EXPECT_NE(text.error().message.find(refusal.message), std::string::npos)
        << text.error().message;
  }
}

TEST(KerasConfig, ReadsTheClassesThatTheFamiliesState) {
  std::set<std::string_view> stated;
  for (const FamilySpec* family : all_families()) {
    for (const KerasArchitecture& known : family->keras) {
      stated.insert(known.classes.begin(), known.classes.end());
    }
  }
  const std::vector<std::string_view> read = keras_classes();
  EXPECT_EQ(std::set<std::string_view>(read.begin(), read.end()), stated);
}

TEST(KerasConfig, OptionsThatAreOffNeedNotBeKnown) {
  json config = keras_config("llama");
  config["config"]["future_option"] = false;
  config["config"]["other_option"] = nullptr;
  EXPECT_TRUE(translate(config).has_value());
}

}  // namespace
}  // namespace ferry::converters::config_test
