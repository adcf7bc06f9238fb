// Config fields that Gemma 4 reads in a way of its own. The tests of all families compare its
// outputs with the fixtures.

#include "converters/blocks/gemma4.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "converters/blocks/shared_layers.h"
#include "converters/blocks/static_ports.h"
#include "converters/config/model_config.h"
#include "converters/family.h"

namespace ferry::converters::gemma4_test {
namespace {

using nlohmann::json;

const std::string kSliding = "sliding_attention", kFull = "full_attention";

Result<ModelConfig> parse(const json& more, const std::string& type = "gemma4_text") {
  json config = {{"model_type", type}, {"num_hidden_layers", 6}, {"hidden_size", 64}};
  config.update(more);
  return parse_model_config(config.dump(), "", "config.json");
}

std::string refusal(const json& more) {
  const auto parsed = parse(more);
  if (!parsed) return parsed.error().message;
  const auto built =
      parsed->family->text_decoder().build(*parsed, {.context_length = 16, .prefill_length = 8});
  return built ? "accepted" : built.error().message;
}

HeadSizes full_heads(const json& more) {
  const auto config = parse(more);
  if (!config) ADD_FAILURE() << config.error().message;
  return config ? config->heads_of(LayerType::kFullAttention) : HeadSizes{};
}

TEST(Gemma4, DefaultsAreThoseOfTheClass) {
  const auto config = parse(json::object());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layer_types.back(), LayerType::kFullAttention);
  EXPECT_EQ(std::ranges::count(config->layer_types, LayerType::kSlidingAttention), 5);
  EXPECT_EQ(config->heads_of(int64_t{0}), (HeadSizes{4, 256}));
  EXPECT_EQ(config->heads_of(int64_t{5}), (HeadSizes{4, 512}));
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kProportional);
  EXPECT_EQ(config->rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(config->rotary_dim(), 512);
  EXPECT_EQ(config->rotary_dim(LayerType::kSlidingAttention), 256);
  EXPECT_EQ(config->sliding_window, 512);
  EXPECT_EQ(config->scalars.attention, 1.0);
  EXPECT_EQ(parse(json::object(), "gemma4_unified_text")->sliding_window, 1024);
}

// The number of key heads of full attention counts only where keys are values.
TEST(Gemma4, HeadsOfFullAttention) {
  EXPECT_EQ(full_heads({{"global_head_dim", 128}, {"num_global_key_value_heads", 2}}),
            (HeadSizes{4, 128}));
  EXPECT_EQ(full_heads({{"num_global_key_value_heads", 2}, {"attention_k_eq_v", true}}),
            (HeadSizes{2, 512}));
  const json heads = {{"head_dim", 64}, {"num_key_value_heads", 1}};
  EXPECT_EQ(full_heads({{"per_layer_config", {{"5", heads}}}, {"global_head_dim", 128}}),
            (HeadSizes{1, 64}));
  EXPECT_EQ(full_heads({{"per_layer_config", json::object()}}), (HeadSizes{4, 256}));
}

TEST(Gemma4, TheLastLayerHasFullAttention) {
  const auto config =
      parse({{"layer_types", {kSliding, kFull, kSliding, kFull, kSliding, kSliding}}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layer_types.back(), LayerType::kFullAttention);
  const json only = {{"num_hidden_layers", 1}, {"layer_types", {kSliding}}};
  EXPECT_EQ(parse(only)->sliding_window, std::nullopt);
}

TEST(Gemma4, LayersWithoutKeysHaveWideMlps) {
  const auto config = parse({{"num_kv_shared_layers", 2},
                             {"use_double_wide_mlp", true},
                             {"intermediate_size", 96},
                             {"layer_types", {kSliding, kFull, kSliding, kFull, kSliding, kFull}}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(first_shared_layer(*config), 4);
  EXPECT_EQ(gemma4_mlp_size(*config, 3), 96);
  EXPECT_EQ(gemma4_mlp_size(*config, 4), 192);
  EXPECT_FALSE(has_cache(*config, 4));
}

// transformers reads neither rope_theta nor rope_scaling nor a pattern of windows.
TEST(Gemma4, KeysOfOtherGemmasHaveNoEffect) {
  const auto config = parse({{"rope_theta", 5.0},
                             {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}},
                             {"rope_local_base_freq", 7.0},
                             {"sliding_window_pattern", 2},
                             {"num_experts", 3}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, *parse(json::object()));
}

TEST(Gemma4, BothDirections) {
  const auto both = parse({{"use_bidirectional_attention", "all"}, {"is_causal", false}});
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_TRUE(both->two_way && both->is_encoder);
  EXPECT_EQ(both->sliding_window, 257);
  EXPECT_FALSE(parse({{"use_bidirectional_attention", "vision"}})->two_way);
  EXPECT_EQ(refusal({{"is_causal", false}}),
            "config.json: 'is_causal' is not what use_bidirectional_attention says");
  EXPECT_NE(refusal({{"use_bidirectional_attention", "text"}}).find("\"all\" and \"vision\""),
            std::string::npos);
}

TEST(Gemma4, WhatDoesNotFitIsRefusedByName) {
  const std::pair<json, std::string> cases[] = {
      {{{"per_layer_config", {{"5", {{"intermediate_size", 9}}}}}}, "'per_layer_config.5."},
      {{{"per_layer_config", {{"6", {{"head_dim", 8}}}}}}, "'per_layer_config' has a layer"},
      {{{"per_layer_config", {{"0", {{"head_dim", 8}}}}}}, "'per_layer_config' has other heads"},
      {{{"global_head_dim", nullptr}}, "'global_head_dim' is null"},
      {{{"global_head_dim", 33}}, "'head_dim' is 33"},
      {{{"sliding_window", nullptr}}, "'sliding_window' is null"},
      {{{"num_kv_shared_layers", 6}}, "'num_kv_shared_layers'"},
      {{{"num_kv_shared_layers", 1}}, "'num_kv_shared_layers' is 1: no earlier layer"},
      {{{"enable_moe_block", true}}, "'num_experts'"},
      {{{"enable_moe_block", true},
        {"num_experts", 2},
        {"top_k_experts", 3},
        {"moe_intermediate_size", 8}},
       "'top_k_experts' is 3 of 2 experts"},
      {{{"rope_parameters", {{kFull, {{"rope_type", "default"}}}}}},
       "'rope_parameters.full_attention.rope_theta' is missing"},
      {{{"rope_parameters", {{kFull, {{"rope_theta", 1000.0}}}}}},
       "'rope_parameters.sliding_attention' is missing"},
  };
  for (const auto& [more, expected] : cases) {
    const std::string said = refusal(more);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace ferry::converters::gemma4_test
