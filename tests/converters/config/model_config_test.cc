#include "converters/config/model_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file.h"

namespace ferry::converters::model_config_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string read(const std::string& path) {
  return read_text_file(FERRY_TESTDATA "/" + path, 1 << 20).value();
}

ModelConfig parse_file(const std::string& path) {
  const auto config = parse_model_config(read(path), "", path);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig{};
}

std::vector<std::string> cases_with_both_styles() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(FERRY_TESTDATA "/families")) {
    if (fs::exists(entry.path() / "config.released.json")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ModelConfig, BothStylesOfAConfigAreEqual) {
  const std::vector<std::string> names = cases_with_both_styles();
  EXPECT_GE(names.size(), 10u);
  for (const std::string& name : names) {
    EXPECT_EQ(parse_file("families/" + name + "/config.released.json"),
              parse_file("families/" + name + "/config.transformers5.json"))
        << name;
  }
}

TEST(ModelConfig, LlamaWithScaledRope) {
  const ModelConfig c = parse_file("families/llama3_tied/config.released.json");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.text_type, "llama");
  EXPECT_FALSE(c.multimodal);
  EXPECT_EQ(c.vocab_size, 384);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 160);
  EXPECT_EQ(c.num_layers, 2);
  EXPECT_EQ(c.num_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 1);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.q_size(), 128);
  EXPECT_EQ(c.kv_size(), 32);
  EXPECT_EQ(c.max_positions, 512);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(c.rope.theta, 500000.0);
  EXPECT_EQ(c.rope.factor, 32.0);
  EXPECT_EQ(c.rope.original_max_positions, 32);
  EXPECT_EQ(c.rotary_dim(), 32);
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.eos_ids, std::vector<int64_t>{2});
  EXPECT_EQ(c.layer_types, std::vector<LayerType>(2, LayerType::kFullAttention));
  EXPECT_FALSE(c.sliding_window);
}

TEST(ModelConfig, MistralSlidesInEveryLayer) {
  const ModelConfig c = parse_file("families/mistral/config.transformers5.json");
  EXPECT_EQ(c.sliding_window, 16);
  EXPECT_EQ(c.layer_types, std::vector<LayerType>(3, LayerType::kSlidingAttention));
}

TEST(ModelConfig, QwenTwoHasBiasesAndNoHeadDim) {
  const ModelConfig c = parse_file("families/qwen2/config.released.json");
  EXPECT_TRUE(c.attention_bias);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_FALSE(c.sliding_window);
}

TEST(ModelConfig, QwenThreeFiveInsideAMultimodalConfig) {
  const ModelConfig c = parse_file("families/qwen3_5_mm/config.released.json");
  EXPECT_EQ(c.model_type, "qwen3_5");
  EXPECT_EQ(c.text_type, "qwen3_5_text");
  EXPECT_TRUE(c.multimodal);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.rotary_dim(), 8);
  EXPECT_EQ(c.linear.value_heads, 4);
  EXPECT_EQ(c.linear.groups(), 2);
  EXPECT_EQ(c.linear.conv_channels(), 2 * 32 + 64);
  EXPECT_EQ(c.layer_types[2], LayerType::kLinearAttention);
  EXPECT_EQ(c.layer_types[3], LayerType::kFullAttention);
}

TEST(ModelConfig, ReleasedModels) {
  EXPECT_EQ(parse_file("configs/Llama-3.2-1B.json").head_dim, 64);
  EXPECT_EQ(parse_file("configs/SmolLM2-135M.json").num_kv_heads, 3);
  EXPECT_EQ(parse_file("configs/Qwen3-0.6B.json").q_size(), 2048);
  const ModelConfig qwen = parse_file("configs/Qwen3.5-0.8B.json");
  EXPECT_EQ(qwen.rotary_dim(), 64);
  EXPECT_EQ(std::count(qwen.layer_types.begin(), qwen.layer_types.end(), LayerType::kFullAttention),
            6);
  EXPECT_TRUE(qwen.eos_ids.empty());
  const ModelConfig smolvlm = parse_file("configs/SmolVLM-500M.json");
  EXPECT_EQ(smolvlm.vision->patches(), 1024);
  EXPECT_EQ(smolvlm.vision->image_tokens(), 64);
  EXPECT_EQ(smolvlm.vision->shuffled_size(), 12288);
  const ModelConfig internvl = parse_file("configs/InternVL3-1B.json");
  EXPECT_EQ(internvl.vision->image_tokens(), 256);
  EXPECT_EQ(internvl.vision->shuffled_size(), 4096);
  EXPECT_TRUE(internvl.vision->qkv_bias);
}

// Configs that tests change with merge patches: a patch sets a key, or removes it with null.
json llama() { return json::parse(read("families/llama/config.released.json")); }
json hybrid() { return json::parse(read("families/qwen3_5_text/config.released.json")); }
json gemma3() {
  return {{"model_type", "gemma3_text"},
          {"vocab_size", 64},
          {"hidden_size", 24},
          {"intermediate_size", 36},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 512},
          {"head_dim", 8}};
}

json experts() { return json::parse(read("families/qwen3_moe/config.released.json")); }

json with(json config, const json& patch) {
  config.merge_patch(patch);  // null removes
  return config;
}

ModelConfig parse(const json& config) {
  const auto result = parse_model_config(config.dump(), "", "config.json");
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : ModelConfig{};
}

struct Refusal {
  ErrorCode code;
  std::string message;
};
Refusal refusal(const json& config) {
  const auto result = parse_model_config(config.dump(), "", "config.json");
  if (result) return {ErrorCode::kInternal, "accepted"};
  return {result.error().code, result.error().message};
}

TEST(ModelConfig, DefaultsOfTransformers) {
  const ModelConfig c = parse(with(llama(), {{"head_dim", nullptr},
                                             {"num_key_value_heads", nullptr},
                                             {"rms_norm_eps", nullptr},
                                             {"hidden_act", nullptr},
                                             {"rope_theta", nullptr},
                                             {"attention_bias", nullptr},
                                             {"mlp_bias", nullptr},
                                             {"tie_word_embeddings", nullptr}}));
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_FALSE(c.tie_word_embeddings);
}

TEST(ModelConfig, TheWindowOfMistralMayBeAbsentOrNull) {
  json config = with(llama(), {{"model_type", "mistral"}});
  EXPECT_EQ(parse(config).sliding_window, 4096);
  config["sliding_window"] = nullptr;
  EXPECT_FALSE(parse(config).sliding_window);
}

TEST(ModelConfig, TheWindowOfQwenBeginsAtALayer) {
  json config = with(llama(), {{"model_type", "qwen2"},
                               {"sliding_window", 8},
                               {"use_sliding_window", true},
                               {"max_window_layers", 2}});
  const ModelConfig c = parse(config);
  EXPECT_EQ(c.sliding_window, 8);
  EXPECT_EQ(c.layer_types,
            (std::vector<LayerType>{LayerType::kFullAttention, LayerType::kFullAttention,
                                    LayerType::kSlidingAttention}));
  config["use_sliding_window"] = false;
  EXPECT_FALSE(parse(config).sliding_window);
  EXPECT_EQ(parse(config).layer_types, std::vector<LayerType>(3, LayerType::kFullAttention));
}

TEST(ModelConfig, LlamaTakesNoNoticeOfAWindow) {
  EXPECT_FALSE(parse(with(llama(), {{"sliding_window", 8}})).sliding_window);
}

TEST(ModelConfig, HybridLayersFollowTheInterval) {
  const json config = with(hybrid(), {{"layer_types", nullptr}});
  EXPECT_EQ(parse(config).layer_types, parse(hybrid()).layer_types);
  const ModelConfig c = parse(with(config, {{"full_attention_interval", 2}}));
  EXPECT_EQ(c.layer_types[1], LayerType::kFullAttention);
  EXPECT_EQ(c.layer_types[2], LayerType::kLinearAttention);
}

TEST(ModelConfig, TheThetaInsideTheRopeParametersWins) {
  const json config = with(llama(), {{"rope_parameters", {{"rope_theta", 5.0}}}});
  EXPECT_EQ(parse(config).rope.theta, 5.0);
}

TEST(ModelConfig, TheLegacyNameOfTheRopeType) {
  const ModelConfig c =
      parse(with(llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}));
  EXPECT_EQ(c.rope.type, RopeConfig::Type::kLinear);
  EXPECT_EQ(c.rope.factor, 4.0);
}

TEST(ModelConfig, GemmaLeavesOutWhatItsClassHasAsADefault) {
  // The released config states these numbers. The others are defaults of the class.
  const ModelConfig c = parse({{"model_type", "gemma3"},
                               {"text_config",
                                {{"model_type", "gemma3_text"},
                                 {"hidden_size", 2560},
                                 {"intermediate_size", 10240},
                                 {"num_hidden_layers", 34},
                                 {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                 {"sliding_window", 1024}}}});
  EXPECT_EQ(c.text_type, "gemma3_text");
  EXPECT_TRUE(c.multimodal);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.num_heads, 8);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.activation, Activation::kGeluTanh);
  EXPECT_EQ(c.scalars.attention, 1.0 / 16);
  EXPECT_EQ(c.scalars.embedding, std::sqrt(2560.0));
  EXPECT_FALSE(c.scalars.attention_softcap);
  EXPECT_EQ(c.sliding_window, 1024);
  EXPECT_EQ(c.layer_types[4], LayerType::kSlidingAttention);
  EXPECT_EQ(c.layer_types[5], LayerType::kFullAttention);
  EXPECT_EQ(std::ranges::count(c.layer_types, LayerType::kFullAttention), 5);
}

TEST(ModelConfig, SlidingLayersOfGemmaHaveTheirOwnRope) {
  const json old = with(gemma3(), {{"rope_theta", 1e6},
                                   {"rope_local_base_freq", 500.0},
                                   {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}});
  const json modern =
      with(gemma3(),
           {{"rope_parameters",
             {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 500.0}}}}}});
  const ModelConfig c = parse(old);
  EXPECT_EQ(c, parse(modern));
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope.type, RopeConfig::Type::kLinear);
  EXPECT_EQ(c.rope.factor, 8.0);
  EXPECT_EQ(c.sliding_rope.theta, 500.0);
  EXPECT_EQ(c.sliding_rope.type, RopeConfig::Type::kDefault);
}

TEST(ModelConfig, SoftcapsMayBeAbsentOrNull) {
  json config = with(gemma3(), {{"model_type", "gemma2"}});
  EXPECT_EQ(parse(config).scalars.attention_softcap, 50.0);
  EXPECT_EQ(parse(config).scalars.logit_softcap, 30.0);
  EXPECT_EQ(parse(config).layer_types[0], LayerType::kSlidingAttention);
  EXPECT_EQ(parse(config).layer_types[1], LayerType::kFullAttention);
  config["attn_logit_softcapping"] = nullptr;
  config["final_logit_softcapping"] = 3;
  EXPECT_FALSE(parse(config).scalars.attention_softcap);
  EXPECT_EQ(parse(config).scalars.logit_softcap, 3.0);
}

TEST(ModelConfig, GraniteHasFourMultipliers) {
  const json config = with(llama(), {{"model_type", "granite"},
                                     {"embedding_multiplier", 12},
                                     {"attention_multiplier", 0.0078125},
                                     {"residual_multiplier", 0.22},
                                     {"logits_scaling", 16.0}});
  const ScalarConfig s = parse(config).scalars;
  EXPECT_EQ(s.embedding, 12.0);
  EXPECT_EQ(s.attention, 0.0078125);
  EXPECT_EQ(s.residual, 0.22);
  EXPECT_EQ(s.logits, 1.0 / 16);
  // Other types ignore these keys.
  EXPECT_EQ(parse(with(config, {{"model_type", "llama"}})).scalars, ScalarConfig{});
}

TEST(ModelConfig, SomeLayersHaveNoRope) {
  json config = with(llama(), {{"model_type", "smollm3"}, {"no_rope_layer_interval", 2}});
  EXPECT_EQ(parse(config).rope_layers, (std::vector<bool>{true, false, true}));
  config["no_rope_layers"] = {0, 1, 1, 0};  // the list may be longer than the number of layers
  EXPECT_EQ(parse(config).rope_layers, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(parse(config).layer_types[0], LayerType::kFullAttention);
  config["sliding_window"] = 8;
  config["use_sliding_window"] = true;
  EXPECT_EQ(parse(config).layer_types[0], LayerType::kSlidingAttention);
  EXPECT_EQ(parse(config).layer_types[1], LayerType::kFullAttention);
  config["no_rope_layers"] = {1, 0};
  EXPECT_EQ(refusal(config).message, "config.json: 'no_rope_layers' has 2 elements for 3 layers");
  EXPECT_EQ(parse(llama()).rope_layers, std::vector<bool>(3, true));
}

TEST(ModelConfig, GenerationConfigWins) {
  const auto c = parse_model_config(llama().dump(), R"({"eos_token_id": [5, 6]})", "config.json");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->eos_ids, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(c->bos_id, 1);
  const auto bad = parse_model_config(llama().dump(), R"({"eos_token_id": "x"})", "config.json");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            "config.json (generation_config.json): 'eos_token_id' is not an integer");
}

TEST(ModelConfig, NegativeTokenIdsMeanNone) {
  const ModelConfig c = parse(with(llama(), {{"bos_token_id", -1}, {"eos_token_id", {-1, 7}}}));
  EXPECT_FALSE(c.bos_id);
  EXPECT_EQ(c.eos_ids, std::vector<int64_t>{7});
}

TEST(ModelConfig, BadNumbersAreRefusedByName) {
  struct Case {
    json patch;
    std::string message;
  };
  const Case cases[] = {
      {{{"hidden_size", 0}}, "'hidden_size' is 0, not from 1 to 16777216"},
      {{{"hidden_size", -64}}, "'hidden_size' is -64, not from 1 to 16777216"},
      {{{"hidden_size", 64.0}}, "'hidden_size' is not an integer"},
      {{{"hidden_size", "64"}}, "'hidden_size' is not an integer"},
      {{{"vocab_size", UINT64_MAX}},
       "'vocab_size' is 18446744073709551615, not from 1 to 16777216"},
      {{{"num_hidden_layers", 1025}}, "'num_hidden_layers' is 1025, not from 1 to 1024"},
      {{{"num_key_value_heads", 3}}, "'num_key_value_heads' is 3, which does not divide 4 heads"},
      {{{"num_attention_heads", 7}, {"num_key_value_heads", 1}, {"head_dim", nullptr}},
       "'num_attention_heads' is 7, which does not divide hidden_size 64, and there is no "
       "head_dim"},
      {{{"head_dim", 23}},
       "'head_dim' is 23: RoPE would rotate 23 dimensions of it, which is not a positive even "
       "number"},
      {{{"rms_norm_eps", 0}}, "'rms_norm_eps' is 0, not from 1e-30 to 1"},
      {{{"tie_word_embeddings", 1}}, "'tie_word_embeddings' is not true or false"},
      {{{"rope_scaling", {{"rope_type", "linear"}}}}, "'rope_scaling.factor' is missing"},
      {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", "x"}}}},
       "'rope_scaling.factor' is not a number"},
      {{{"rope_scaling", 3}}, "'rope_scaling' is not an object"},
      {{{"layer_types", {"full_attention"}}}, "'layer_types' has 1 elements for 3 layers"},
      {{{"layer_types", "full_attention"}}, "'layer_types' is not an array"},
      {{{"model_type", nullptr}}, "'model_type' is missing"},
      {{{"text_config", 1}}, "'text_config' is not an object"},
  };
  for (const Case& c : cases) {
    const Refusal r = refusal(with(llama(), c.patch));
    EXPECT_EQ(r.message, "config.json: " + c.message);
    EXPECT_EQ(r.code, ErrorCode::kBadInput) << c.message;
  }
}

TEST(ModelConfig, BadLinearAttentionIsRefusedByName) {
  EXPECT_EQ(refusal(with(hybrid(), {{"linear_num_value_heads", 3}})).message,
            "config.json: 'linear_num_value_heads' is 3, not a multiple of 2 key heads");
  EXPECT_EQ(refusal(with(hybrid(), {{"linear_conv_kernel_dim", 0}})).message,
            "config.json: 'linear_conv_kernel_dim' is 0, not from 1 to 64");
}

TEST(ModelConfig, ExpertsInSomeLayers) {
  const ModelConfig c = parse(experts());
  EXPECT_EQ(c.moe.experts, 6);
  EXPECT_EQ(c.moe.per_token, 2);
  EXPECT_EQ(c.moe.expert_size, 32);
  EXPECT_EQ(c.moe.shared_size, 0);
  EXPECT_TRUE(c.moe.norm_top_scores);
  EXPECT_EQ(c.moe.layers, (std::vector<bool>{true, false, true}));
  EXPECT_FALSE(parse(with(experts(), {{"norm_topk_prob", nullptr}})).moe.norm_top_scores);
  // decoder_sparse_step counts layers from 1.
  const json stepped = with(experts(), {{"mlp_only_layers", nullptr}, {"decoder_sparse_step", 2}});
  EXPECT_EQ(parse(stepped).moe.layers, (std::vector<bool>{false, true, false}));
  // num_experts is another name of num_local_experts.
  const json named = with(experts(), {{"num_local_experts", nullptr}, {"num_experts", 12}});
  EXPECT_EQ(parse(named).moe.experts, 12);
  // All layers are dense, so that num_experts_per_tok is ignored.
  for (const json& patch : {json{{"mlp_only_layers", {0, 1, 2}}}, json{{"num_local_experts", 0}},
                            json{{"decoder_sparse_step", 4}}}) {
    const ModelConfig dense = parse(with(with(experts(), {{"num_experts_per_tok", 99}}), patch));
    EXPECT_EQ(dense.moe, MoeConfig{}) << patch.dump();
    EXPECT_FALSE(dense.has_experts(0));
  }
}

TEST(ModelConfig, ExpertsInEveryLayer) {
  const json patch = {{"model_type", "qwen3_5_moe_text"},
                      {"intermediate_size", nullptr},
                      {"num_experts", 16},
                      {"mlp_only_layers", {0}},
                      {"norm_topk_prob", false}};
  const ModelConfig c = parse(with(hybrid(), patch));
  EXPECT_EQ(c.moe.experts, 16);
  // The class ignores the other two keys, so these are its defaults.
  EXPECT_EQ(c.moe.per_token, 8);
  EXPECT_EQ(c.moe.expert_size, 512);
  EXPECT_EQ(c.moe.shared_size, 512);
  EXPECT_TRUE(c.moe.norm_top_scores);
  EXPECT_EQ(c.moe.layers, std::vector<bool>(static_cast<size_t>(c.num_layers), true));
  EXPECT_EQ(c.intermediate_size, 0);
}

TEST(ModelConfig, BadExpertsAreRefusedByName) {
  EXPECT_EQ(refusal(with(experts(), {{"num_experts_per_tok", 7}})).message,
            "config.json: 'num_experts_per_tok' is 7 of 6 experts");
  EXPECT_EQ(
      refusal(with(hybrid(), {{"model_type", "qwen3_5_moe_text"}, {"num_experts", 0}})).message,
      "config.json: 'num_experts' is 0, but there is no other MLP");
}

TEST(ModelConfig, WhatWouldChangeTheOutputIsUnsupported) {
  struct Case {
    json config;
    std::string key;
  };
  const Case cases[] = {
      {with(llama(), {{"hidden_act", "mish"}}), "'hidden_act'"},
      {with(gemma3(), {{"hidden_activation", "mish"}}), "'hidden_activation'"},
      {with(llama(), {{"quantization_config", {{"quant_method", "gptq"}}}}),
       "'quantization_config'"},
      {with(llama(), {{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 4.0}}}}),
       "'rope_scaling.rope_type'"},
      {with(llama(), {{"rope_parameters", {{"full_attention", {{"rope_theta", 1.0}}}}}}),
       "'rope_parameters.full_attention'"},
      {with(llama(), {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}),
       "'layer_types'"},
      {with(llama(), {{"layer_types", {"mamba", "mamba", "mamba"}}}), "'layer_types'"},
      {{{"model_type", "albert"}, {"n_embd", 768}}, "'model_type'"},
  };
  for (const Case& c : cases) {
    const Refusal r = refusal(c.config);
    EXPECT_EQ(r.code, ErrorCode::kUnsupported) << r.message;
    EXPECT_EQ(r.message.find("config.json: " + c.key), 0u) << r.message;
  }
}

TEST(ModelConfig, IsAJsonObject) {
  for (const std::string text :
       {"", "[]", "null", "{", R"({"model_type": "a", "model_type": "b"})"}) {
    EXPECT_FALSE(parse_model_config(text, "", "config.json")) << text;
  }
}

}  // namespace
}  // namespace ferry::converters::model_config_test
