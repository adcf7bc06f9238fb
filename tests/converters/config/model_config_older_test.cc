// Configs of families that came before Llama: what they may say, and what is refused by name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "converters/blocks/alibi.h"
#include "converters/config/model_config.h"

namespace ferry::converters::model_config_older_test {
namespace {

using nlohmann::json;

json of(const char* type, const json& more = json::object()) {
  json config = {{"model_type", type}};
  config.update(more);
  return config;
}

ModelConfig parse(const json& config) {
  return parse_model_config(config.dump(), "", "config.json").value();
}

std::string refusal(const json& config) {
  const auto result = parse_model_config(config.dump(), "", "config.json");
  return result ? "accepted" : result.error().message;
}

TEST(OlderFamilies, AttentionTypesOfGptNeoAreRepeated) {
  const json layers = json::parse(R"([[["global", "local"], 1], [["local"], 2]])");
  const ModelConfig c = parse(of("gpt_neo", {{"num_layers", 4}, {"attention_types", layers}}));
  using enum LayerType;
  EXPECT_EQ(c.layer_types,
            (std::vector{kFullAttention, kSlidingAttention, kSlidingAttention, kSlidingAttention}));
  EXPECT_EQ(c.sliding_window, 256);
  EXPECT_EQ(c.scalars.attention, 1.0);
}

TEST(OlderFamilies, ListsThatDoNotFitAreRefused) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"([[["global"], 3]])", "config.json: 'attention_types' does not make 2 layers"},
      {R"([[["global"], 1000000]])",
       "config.json: 'attention_types' is not a list of names and counts"},
      {R"([[["global", "near"], 1]])",
       "config.json: 'attention_types' has another name than global, local"},
      {R"([[[], 2]])", "config.json: 'attention_types' is not a list of names and counts"},
      {R"(["global", 2])", "config.json: 'attention_types' is not a list of names and counts"},
      {"7", "config.json: 'attention_types' is not a list of names and counts"}};
  for (const auto& [types, message] : kCases) {
    EXPECT_EQ(refusal(of("gpt_neo", {{"num_layers", 2}, {"attention_types", json::parse(types)}})),
              message);
  }
}

TEST(OlderFamilies, FalconHasOneHeadOfKeysUnlessItsArchitectureIsNewer) {
  const json sizes = {{"hidden_size", 64}, {"num_attention_heads", 4}, {"num_kv_heads", 2}};
  const auto heads = [&](json more) {
    more.update(sizes);
    return parse(of("falcon", more)).num_kv_heads;
  };
  EXPECT_EQ(heads(json::object()), 1);
  EXPECT_EQ(heads({{"new_decoder_architecture", true}}), 2);
  json all = sizes;
  all["multi_query"] = false;
  EXPECT_EQ(refusal(of("falcon", all)), "config.json: 'num_kv_heads' is not the number of heads");
}

TEST(OlderFamilies, WhatTheReferenceCannotComputeIsRefused) {
  EXPECT_EQ(refusal(of("falcon", {{"new_decoder_architecture", true}, {"parallel_attn", false}})),
            "config.json: 'parallel_attn' is not true in the new architecture");
  EXPECT_EQ(refusal(of("falcon", {{"num_ln_in_parallel_attn", 2}})),
            "config.json: 'num_ln_in_parallel_attn' is not what the architecture has");
  EXPECT_EQ(refusal(of("bloom", {{"slow_but_exact", true}, {"pretraining_tp", 2}})),
            "config.json: 'slow_but_exact' is true: not supported with pretraining_tp");
  EXPECT_EQ(refusal(of("bloom", {{"slow_but_exact", true}})), "accepted");
  EXPECT_EQ(refusal(of("openai-gpt", {{"afn", "tanh"}})),
            "config.json: 'afn' is none of gelu, relu, silu and swish");
}

TEST(OlderFamilies, AlibiTakesThePlaceOfRope) {
  EXPECT_FALSE(parse(of("falcon", {{"alibi", true}})).has_rope());
  EXPECT_TRUE(parse(of("falcon")).has_rope());
  const ModelConfig mpt = parse(of("mpt", {{"attn_config", {{"clip_qkv", 6}, {"alibi", false}}}}));
  EXPECT_EQ(mpt.number(kAlibi), kExactAlibi);  // as in the reference, whatever the config says
  EXPECT_EQ(mpt.scalars.qkv_clip, 6);
}

TEST(OlderFamilies, HeadsBeyondAPowerOfTwoHaveSlopesBetweenTheOthers) {
  EXPECT_EQ(alibi_slope(0, 8), 0.5);
  EXPECT_EQ(alibi_slope(7, 8), 1.0 / 256);
  EXPECT_EQ(alibi_slope(3, 6), 1.0 / 256);
  EXPECT_EQ(alibi_slope(4, 6), 0.5);
  EXPECT_EQ(alibi_slope(5, 6), 0.125);
}

}  // namespace
}  // namespace ferry::converters::model_config_older_test
