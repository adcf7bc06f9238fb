// Configs of DBRX, Doge, JetMoE, MiMo-V2-Flash and OLMo Hybrid: what their classes in transformers
// 5.23.0 read beyond the keys of most families, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/config/model_config.h"
#include "converters/family.h"

namespace ferry::converters::model_config_newest_test {
namespace {

using nlohmann::json;

json type(const std::string& name, const json& more = json::object()) {
  json config = {{"model_type", name}};
  config.update(more);
  return config;
}

ModelConfig parse(const json& config) {
  const auto result = parse_model_config(config.dump(), "", "config.json");
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : ModelConfig{};
}

// Returns "4 config.json: ..." or "accepted".
std::string refusal(const json& config) {
  const auto result = parse_model_config(config.dump(), "", "config.json");
  if (result) return "accepted";
  return std::to_string(static_cast<int>(result.error().code)) + " " + result.error().message;
}

TEST(NewestConfigs, DbrxHasItsSizesInTwoObjects) {
  const ModelConfig usual = parse(type("dbrx"));
  EXPECT_EQ(usual.moe.experts, 4);
  EXPECT_EQ(usual.moe.per_token, 1);
  EXPECT_EQ(usual.moe.expert_size, 3584);
  EXPECT_TRUE(usual.moe.norm_top_scores);
  EXPECT_EQ(usual.scalars.qkv_clip, std::nullopt);

  const json released = {
      {"attn_config", {{"clip_qkv", 8}, {"kv_n_heads", 8}, {"rope_theta", 500000}}},
      {"ffn_config",
       {{"ffn_hidden_size", 10752},
        {"moe_num_experts", 16},
        {"moe_top_k", 4},
        {"moe_normalize_expert_weights", nullptr},
        {"ffn_act_fn", {{"name", "gelu"}}}}}};
  const ModelConfig c = parse(type("dbrx", released));
  EXPECT_EQ(c.num_kv_heads, 8);
  EXPECT_EQ(c.scalars.qkv_clip, 8.0);
  EXPECT_EQ(c.moe.experts, 16);
  EXPECT_EQ(c.moe.per_token, 4);
  EXPECT_EQ(c.moe.expert_size, 10752);
  EXPECT_FALSE(c.moe.norm_top_scores);
  EXPECT_EQ(c.activation, Activation::kGelu);
}

TEST(NewestConfigs, DbrxRefusesWhatItsExpertsCannotBe) {
  const auto of = [](const json& experts) {
    return refusal(type("dbrx", {{"ffn_config", experts}}));
  };
  EXPECT_EQ(of({{"moe_normalize_expert_weights", 2.0}}),
            "4 config.json: 'ffn_config.moe_normalize_expert_weights' is 2; 1 and null are "
            "supported");
  EXPECT_EQ(of({{"moe_top_k", 5}}), "3 config.json: 'ffn_config.moe_top_k' is 5 of 4");
  EXPECT_EQ(of({{"ffn_act_fn", {{"name", "relu2"}}}}),
            "4 config.json: 'ffn_config.ffn_act_fn.name' is not supported for experts");
}

TEST(NewestConfigs, DogeHasADimensionForTheBiasOfKeys) {
  const ModelConfig c = parse(type("doge"));
  EXPECT_EQ(c.rotary_dim(), 128);
  EXPECT_EQ(c.scalars.attention, 1.0 / std::sqrt(128.0));
  EXPECT_EQ(c.number("keep_window_size"), 2048);
  EXPECT_EQ(refusal(type("doge", {{"is_moe", true}})),
            "4 config.json: 'is_moe' is true: the experts of a token depend on later tokens");
}

TEST(NewestConfigs, EveryExpertOfJetMoeHasHeadsOfQueries) {
  const ModelConfig c = parse(
      type("jetmoe",
           {{"num_key_value_heads", 3}, {"num_experts_per_tok", 2}, {"num_attention_heads", 7}}));
  EXPECT_EQ(c.num_heads, 6);
  EXPECT_EQ(c.moe.experts, 8);
  EXPECT_EQ(refusal(type("jetmoe", {{"num_experts_per_tok", 9}})),
            "3 config.json: 'num_experts_per_tok' is 9 of 8 experts");
  EXPECT_EQ(refusal(type("jetmoe", {{"activation_function", "relu2"}})),
            "4 config.json: 'activation_function' of experts: not supported");
}

TEST(NewestConfigs, LayersOfMimoDifferInHeadsWindowsAndRope) {
  const ModelConfig c = parse(type("mimo_v2_flash", {{"num_hidden_layers", 7}}));
  std::vector<bool> slides;
  for (const LayerType layer : c.layer_types) {
    slides.push_back(layer == LayerType::kSlidingAttention);
  }
  EXPECT_EQ(slides, std::vector<bool>({false, true, true, true, true, false, true}));
  EXPECT_EQ(c.moe.layers, std::vector<bool>({false, true, true, true, true, true, true}));
  EXPECT_EQ(c.heads_of(LayerType::kFullAttention), (HeadSizes{4, 192}));
  EXPECT_EQ(c.heads_of(LayerType::kSlidingAttention), (HeadSizes{8, 192}));
  EXPECT_EQ(c.rotary_dim(), 64);
  EXPECT_EQ(c.sliding_rope.theta, 1e4);
  EXPECT_EQ(c.sliding_window, 129);
  EXPECT_EQ(c.scalars.values, 0.707);
  EXPECT_EQ(c.number(kAttentionSinks), kSlidingSinks);
  EXPECT_EQ(parse(type("mimo_v2_flash", {{"sliding_window_size", 5}})).sliding_window, 6);
  EXPECT_EQ(refusal(type("mimo_v2_flash", {{"v_head_dim", 193}})),
            "4 config.json: 'v_head_dim' is 193, more than head_dim 192: not supported");
}

// The class has a part of a head for RoPE of type default, and whole heads for all others.
TEST(NewestConfigs, OnlyDefaultRopeOfMimoTurnsAPartWhereNoneIsStated) {
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e4}};
  const json plain = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  const ModelConfig c = parse(
      type("mimo_v2_flash",
           {{"rope_parameters", {{"full_attention", linear}, {"sliding_attention", plain}}}}));
  EXPECT_EQ(c.rotary_dim(LayerType::kFullAttention), 192);
  EXPECT_EQ(c.rotary_dim(LayerType::kSlidingAttention), 64);
}

TEST(NewestConfigs, SizesOfOlmoHybridFollowFromItsHeads) {
  const ModelConfig c = parse(type("olmo_hybrid"));
  EXPECT_EQ(c.linear.key_heads, 30);
  EXPECT_EQ(c.linear.value_heads, 30);
  EXPECT_EQ(c.linear.key_dim, 96);
  EXPECT_EQ(c.linear.value_dim, 192);
  EXPECT_EQ(c.number("linear_allow_neg_eigval"), 1);
  EXPECT_EQ(c.layer_types[3], LayerType::kFullAttention);
  EXPECT_EQ(std::ranges::count(c.layer_types, LayerType::kFullAttention), 8);
  const ModelConfig small = parse(type("olmo_hybrid", {{"num_hidden_layers", 2}}));
  EXPECT_EQ(small.layer_types.back(), LayerType::kFullAttention);
  EXPECT_EQ(refusal(type("olmo_hybrid", {{"num_hidden_layers", 1}})),
            "3 config.json: 'layer_types' does not have both linear_attention and full_attention");
}

TEST(NewestConfigs, ANullAsTheBaseTakesRopeFromOlmoHybrid) {
  const auto turned = [](const json& more) { return parse(type("olmo_hybrid", more)).has_rope(); };
  EXPECT_TRUE(turned(json::object()));
  EXPECT_TRUE(turned({{"rope_parameters", nullptr}}));
  EXPECT_FALSE(turned({{"rope_theta", nullptr}}));
  EXPECT_FALSE(turned({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", nullptr}}}}));
  EXPECT_TRUE(turned({{"rope_theta", nullptr}, {"rope_parameters", {{"rope_theta", 5e5}}}}));
}

}  // namespace
}  // namespace ferry::converters::model_config_newest_test
