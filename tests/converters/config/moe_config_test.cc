// Configs of families with grouped experts, sigmoid scores or expert biases, with latent attention
// or with Mamba layers: the keys that are read, and refusals.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "converters/config/model_config.h"

namespace ferry::converters::moe_config_test {
namespace {

using Json = nlohmann::json;
using Scores = MoeConfig::Scores;

Json config_of(const std::string& family) {
  std::ifstream in(std::filesystem::path(FERRY_TESTDATA) / "families" / family / "config.json");
  return Json::parse(in);
}

Result<ModelConfig> read(const std::string& family, const Json& changes) {
  Json config = config_of(family);
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return parse_model_config(config.dump(), "", "config.json");
}

ModelConfig parse(const std::string& family, const Json& changes = Json::object()) {
  const auto config = read(family, changes);
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config.value_or(ModelConfig{});
}

TEST(ExpertConfig, GroupsAndSigmoidsAreRead) {
  const MoeConfig moe = parse("deepseek_v3").moe;
  EXPECT_EQ(moe.scores, Scores::kSigmoid);
  EXPECT_TRUE(moe.choice_bias);
  EXPECT_TRUE(moe.norm_top_scores);
  EXPECT_FALSE(moe.shared_gate);
  EXPECT_EQ(moe.groups, 4);
  EXPECT_EQ(moe.top_groups, 2);
  EXPECT_EQ(moe.group_best, 2);
  EXPECT_EQ(moe.scale, 2.5);
  EXPECT_EQ(moe.layers, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(parse("glm4_moe").moe.shared_size, 24);  // two shared experts of 12, side by side
  EXPECT_EQ(parse("gpt_oss").moe.scores, Scores::kTopSoftmax);
}

TEST(ExpertConfig, DeepseekV2ChoosesByItsMethod) {
  const MoeConfig limited = parse("deepseek_v2").moe;
  EXPECT_EQ(limited.groups, 4);
  EXPECT_EQ(limited.group_best, 1);
  EXPECT_FALSE(limited.norm_top_scores);  // this method ignores norm_topk_prob
  const MoeConfig greedy = parse("deepseek_v2", {{"topk_method", "greedy"}}).moe;
  EXPECT_EQ(greedy.groups, 1);
  EXPECT_EQ(greedy.scores, Scores::kSoftmax);
}

TEST(ExpertConfig, LatentAttentionHasOneKeyHead) {
  const ModelConfig c = parse("deepseek_v3");
  EXPECT_EQ(c.num_heads, 2);
  EXPECT_EQ(c.num_kv_heads, 1);
  EXPECT_EQ(c.head_dim, 20);  // 8 rotated dimensions, and 12 of the latent vector
  EXPECT_EQ(c.rotary_dim(), 8);
  // The scale is 1 / sqrt(20), times the square of 0.1 * 0.7 * ln(8) + 1.
  EXPECT_NEAR(c.scalars.attention.value_or(0), 0.2934414, 1e-6);
  EXPECT_NEAR(parse("deepseek_v2").scalars.attention.value_or(0), 0.2236068, 1e-6);
}

TEST(ExpertConfig, MambaLayersAndPositionsAreRead) {
  const ModelConfig c = parse("granitemoehybrid_mamba");
  EXPECT_EQ(c.layer_types[0], LayerType::kMamba);
  EXPECT_EQ(c.layer_types[1], LayerType::kFullAttention);
  EXPECT_EQ(c.rope_layers, std::vector<bool>(4, false));
  const ModelConfig turned = parse("granitemoehybrid_mamba", {{"position_embedding_type", "rope"}});
  EXPECT_EQ(turned.rope_layers, std::vector<bool>(4, true));
  const ModelConfig all = parse("granitemoehybrid_mamba", {{"layer_types", nullptr}});
  EXPECT_EQ(all.layer_types, std::vector<LayerType>(4, LayerType::kMamba));
}

struct Refusal {
  const char* family;
  Json changes;
  ErrorCode code;
  const char* key;  // the key that the message names
};

TEST(ExpertConfig, WhatDoesNotFitIsRefusedByItsKey) {
  const ErrorCode bad = ErrorCode::kBadInput, unsupported = ErrorCode::kUnsupported;
  const Refusal kRefusals[] = {
      {"deepseek_v3", {{"n_group", 3}}, bad, "n_group"},
      {"deepseek_v3", {{"n_group", 8}}, bad, "n_group"},  // a group of one expert has no best two
      {"deepseek_v3", {{"topk_group", 5}}, bad, "topk_group"},
      {"deepseek_v3", {{"num_experts_per_tok", 5}}, bad, "topk_group"},
      {"deepseek_v3", {{"num_key_value_heads", 1}}, bad, "num_key_value_heads"},
      {"deepseek_v3", {{"n_shared_experts", 0}}, bad, "n_shared_experts"},
      {"deepseek_v3", {{"kv_lora_rank", nullptr}}, bad, "kv_lora_rank"},
      {"deepseek_v3", {{"qk_rope_head_dim", 7}}, bad, "qk_rope_head_dim"},
      {"deepseek_v3", {{"first_k_dense_replace", nullptr}}, bad, "first_k_dense_replace"},
      {"deepseek_v2", {{"topk_method", "noaux_tc"}}, unsupported, "topk_method"},
      {"glm4_moe", {{"hidden_act", "gelu"}}, unsupported, "hidden_act"},
      {"lfm2_moe", {{"layer_types", nullptr}}, bad, "layer_types"},
      {"gpt_oss", {{"num_experts_per_tok", 9}}, bad, "num_experts_per_tok"},
      {"gpt_oss", {{"rope_parameters", nullptr}}, unsupported, "rope_parameters"},
      {"granitemoehybrid_mamba", {{"time_step_limit", {-1.0, 0.5}}}, bad, "time_step_limit"},
      {"granitemoehybrid_mamba", {{"mamba_d_head", 4}}, bad, "mamba_d_head"},
      {"granitemoehybrid_mamba", {{"mamba_n_groups", 3}}, bad, "mamba_n_groups"},
      {"llama", {{"layer_types", {"mamba", "mamba", "mamba"}}}, unsupported, "layer_types"}};
  for (const Refusal& refusal : kRefusals) {
    const auto config = read(refusal.family, refusal.changes);
    SCOPED_TRACE(refusal.family + refusal.changes.dump());
    ASSERT_FALSE(config.has_value());
    EXPECT_EQ(config.error().code, refusal.code) << config.error().message;
    EXPECT_NE(config.error().message.find(std::string("'") + refusal.key + "'"), std::string::npos)
        << config.error().message;
  }
}

}  // namespace
}  // namespace ferry::converters::moe_config_test
