// Configs of models with states instead of attention, or beside it. The sizes are those of released
// models.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "converters/config/model_config.h"

namespace ferry::converters::model_config_states_test {
namespace {

using Json = nlohmann::json;

Result<ModelConfig> read(const Json& config) {
  return parse_model_config(config.dump(), "", "config.json");
}

ModelConfig parse(const Json& config) {
  const auto read_config = read(config);
  EXPECT_TRUE(read_config.has_value()) << read_config.error().message;
  return read_config.value_or(ModelConfig{});
}

int64_t count(const ModelConfig& config, LayerType type) {
  return std::ranges::count(config.layer_types, type);
}

const Json kInfinity = {{"__float__", "Infinity"}};

TEST(StateConfig, Mamba2) {
  const ModelConfig c = parse({{"model_type", "mamba2"},
                               {"hidden_size", 768},
                               {"num_heads", 24},
                               {"head_dim", 64},
                               {"n_groups", 1},
                               {"num_hidden_layers", 24},
                               {"state_size", 128},
                               {"vocab_size", 50288},
                               {"tie_word_embeddings", true},
                               {"time_step_limit", {0.0, kInfinity}}});
  EXPECT_EQ(c.mamba.inner(), 1536);
  EXPECT_EQ(c.mamba.conv_channels(), 1792);
  EXPECT_EQ(c.mamba.conv_kernel, 4);
  EXPECT_FALSE(c.mamba.greatest_step);
  EXPECT_EQ(count(c, LayerType::kMamba), 24);
  EXPECT_EQ(c.intermediate_size, 0);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
}

TEST(StateConfig, MambaAndFalconMamba) {
  const ModelConfig c = parse(
      {{"model_type", "mamba"}, {"hidden_size", 768}, {"num_hidden_layers", 24}, {"expand", 2}});
  EXPECT_EQ(c.mamba.inner(), 1536);
  EXPECT_EQ(c.mamba.rank, 48);
  EXPECT_EQ(c.mamba.state, 16);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.mamba.inner_norms);
  const ModelConfig falcon = parse({{"model_type", "falcon_mamba"},
                                    {"hidden_size", 4096},
                                    {"num_hidden_layers", 64},
                                    {"time_step_rank", 256},
                                    {"tie_word_embeddings", false},
                                    {"mixer_rms_eps", 1e-6}});
  EXPECT_EQ(falcon.mamba.rank, 256);
  EXPECT_TRUE(falcon.mamba.inner_norms);
  EXPECT_FALSE(falcon.mamba.inner_weights);
  EXPECT_EQ(falcon.mamba.norm_eps, 1e-6);
}

TEST(StateConfig, Bamba) {
  const ModelConfig c = parse({{"model_type", "bamba"},
                               {"attn_layer_indices", {9, 18, 27}},
                               {"mamba_d_head", 64},
                               {"mamba_d_state", 128},
                               {"partial_rotary_factor", 0.25},  // the class always takes 0.5
                               {"vocab_size", 128256}});
  EXPECT_EQ(count(c, LayerType::kFullAttention), 3);
  EXPECT_EQ(c.layer_types[18], LayerType::kFullAttention);
  EXPECT_EQ(c.rotary_dim(), 64);
  EXPECT_EQ(c.mamba.inner(), 8192);
}

TEST(StateConfig, FalconH1) {
  const Json config = {
      {"model_type", "falcon_h1"},
      {"hidden_size", 1024},
      {"intermediate_size", 2048},
      {"num_hidden_layers", 36},
      {"num_attention_heads", 8},
      {"num_key_value_heads", 2},
      {"head_dim", 64},
      {"key_multiplier", 0.390625},
      {"lm_head_multiplier", 0.0390625},
      {"embedding_multiplier", 5.656854249492381},
      {"attention_out_multiplier", 0.9375},
      {"ssm_in_multiplier", 1.25},
      {"ssm_out_multiplier", 0.23570226039551587},
      {"mlp_multipliers", {0.8838834764831844, 0.5859375}},
      {"ssm_multipliers", {0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738}},
      {"mamba_d_ssm", 1536},
      {"mamba_d_head", 64},
      {"mamba_d_state", 128},
      {"mamba_n_heads", 24},
      {"mamba_norm_before_gate", false},
      {"mamba_rms_norm", false},
      {"rope_theta", 1e11},
      {"vocab_size", 32784}};
  const ModelConfig c = parse(config);
  EXPECT_EQ(count(c, LayerType::kMambaAndAttention), 36);
  EXPECT_EQ(c.mamba.inner(), 1536);
  EXPECT_EQ(c.mamba.norm, MambaConfig::Norm::kNone);
  EXPECT_EQ(c.mamba.multipliers.size(), 5U);
  EXPECT_NEAR(c.scalars.attention.value_or(0), 0.390625 / 8, 1e-12);
  EXPECT_EQ(c.scalars.mlp_out, 0.5859375);
  Json normed = config;
  normed["mamba_rms_norm"] = true;
  EXPECT_EQ(parse(normed).mamba.norm, MambaConfig::Norm::kBehindGate);
  normed["mlp_multipliers"] = {1.0};
  EXPECT_FALSE(read(normed));
}

TEST(StateConfig, NemotronH) {
  const std::string pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
  const Json config = {{"model_type", "nemotron_h"}, {"hybrid_override_pattern", pattern},
                       {"num_hidden_layers", 52},    {"mamba_num_heads", 128},
                       {"mamba_head_dim", 64},       {"time_step_limit", {0.0, kInfinity}}};
  const ModelConfig c = parse(config);
  EXPECT_EQ(c.num_layers, 52);
  EXPECT_EQ(count(c, LayerType::kMamba), 24);
  EXPECT_EQ(count(c, LayerType::kFullAttention), 4);
  EXPECT_EQ(count(c, LayerType::kNoMixer), 24);
  EXPECT_EQ(c.moe.experts, 0);
  EXPECT_EQ(c.activation, Activation::kRelu2);
  EXPECT_EQ(c.mamba.least_step, 0.001);
  EXPECT_FALSE(c.has_rope());
  Json tied = config;
  tied["tie_word_embeddings"] = true;
  EXPECT_FALSE(parse(tied).tie_word_embeddings);  // the class ties nothing

  const ModelConfig nano =
      parse({{"model_type", "nemotron_h"},
             {"hybrid_override_pattern", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
             {"hidden_size", 2688},
             {"mamba_num_heads", 64},
             {"moe_intermediate_size", 1856},
             {"moe_shared_expert_intermediate_size", 3712},
             {"n_routed_experts", 128},
             {"num_experts_per_tok", 6},
             {"num_key_value_heads", 2},
             {"routed_scaling_factor", 2.5}});
  EXPECT_EQ(nano.num_layers, 52);
  EXPECT_EQ(nano.moe.experts, 128);
  EXPECT_FALSE(nano.moe.gated);
  EXPECT_TRUE(nano.has_experts(1));
  EXPECT_FALSE(nano.has_experts(0));
  EXPECT_EQ(nano.moe.scale, 2.5);

  Json other = config;
  other["hybrid_override_pattern"] = "M-X";
  EXPECT_FALSE(read(other));
  other["layers_block_type"] = {"mamba", "attention", "mlp"};  // the list wins
  EXPECT_EQ(parse(other).layer_types[1], LayerType::kFullAttention);
  other["layers_block_type"] = {"mamba", "moe"};
  other["mlp_hidden_act"] = "gelu";
  EXPECT_EQ(read(other).error().code, ErrorCode::kUnsupported);
}

TEST(StateConfig, Zamba2) {
  Json types = Json::array();
  for (int i = 0; i < 38; ++i) types.push_back(i % 6 == 5 ? "hybrid" : "mamba");
  const Json config = {{"model_type", "zamba2"},    {"hidden_size", 2048},
                       {"num_hidden_layers", 38},   {"layers_block_type", types},
                       {"n_mamba_heads", 64},       {"mamba_d_state", 128},
                       {"use_mem_rope", true},      {"use_shared_attention_adapter", true},
                       {"attention_head_dim", 128}, {"time_step_limit", nullptr}};
  const ModelConfig c = parse(config);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.intermediate_size, 8192);
  EXPECT_EQ(count(c, LayerType::kMambaAndAttention), 6);
  EXPECT_EQ(c.mamba.head_dim, 64);
  EXPECT_EQ(c.scalars.attention, 0.125);
  EXPECT_TRUE(c.has_rope());
  EXPECT_EQ(count(parse({{"model_type", "zamba2"}}), LayerType::kMambaAndAttention), 9);
  Json other = config;
  other["num_key_value_heads"] = 8;
  EXPECT_FALSE(read(other));
  other = config;
  other["layers_block_type"][0] = "full_attention";
  EXPECT_EQ(read(other).error().code, ErrorCode::kUnsupported);
  // The keys of blocks that are not shared would be millions.
  other["layers_block_type"] = Json(std::vector<std::string>(1000, "hybrid"));
  other["num_hidden_layers"] = 1000;
  EXPECT_TRUE(read(other).has_value()) << read(other).error().message;
  other["tie_word_embeddings"] = false;
  EXPECT_EQ(read(other).error().code, ErrorCode::kUnsupported);
}

TEST(StateConfig, HeadsBesideStatesAreCheckedToo) {
  const auto refused = read({{"model_type", "falcon_h1"}, {"num_key_value_heads", 5}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'num_key_value_heads' is 5, which does not divide 32"),
            std::string::npos)
      << refused.error().message;
}

TEST(StateConfig, Jamba) {
  const Json config = {{"model_type", "jamba"}, {"mamba_dt_rank", 256}};
  const ModelConfig c = parse(config);
  EXPECT_EQ(count(c, LayerType::kFullAttention), 4);
  EXPECT_EQ(c.layer_types[12], LayerType::kFullAttention);
  EXPECT_EQ(c.moe.experts, 16);
  EXPECT_EQ(std::ranges::count(c.moe.layers, true), 16);
  EXPECT_FALSE(c.moe.norm_top_scores);
  EXPECT_TRUE(c.mamba.inner_weights);
  EXPECT_FALSE(c.has_rope());
  EXPECT_EQ(parse({{"model_type", "jamba"}, {"num_experts", 1}}).moe.experts, 0);
  for (const char* key : {"attn_layer_offset", "expert_layer_offset"}) {
    Json other = config;
    other[key] = 8;
    EXPECT_FALSE(read(other)) << key;
  }
}

}  // namespace
}  // namespace ferry::converters::model_config_states_test
