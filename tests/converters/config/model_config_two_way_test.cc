// Bidirectional attention, as transformers 5.23.0 reads it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "converters/config/model_config.h"

namespace ferry::converters::model_config_two_way_test {
namespace {

using nlohmann::json;

Result<ModelConfig> parse(const std::string& type, const json& more) {
  json config = {{"model_type", type},       {"vocab_size", 50},       {"hidden_size", 64},
                 {"intermediate_size", 96},  {"num_hidden_layers", 4}, {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"head_dim", 16},         {"sliding_window", 9}};
  config.update(more);
  return parse_model_config(config.dump(), "", "config.json");
}

TEST(TwoWayConfig, OnlyGemmaReadsItsOwnKey) {
  const json asked = {{"use_bidirectional_attention", true}};
  for (const std::string type : {"gemma", "gemma2"}) {
    const auto config = parse(type, asked);
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  }
  for (const std::string type : {"gemma3_text", "llama", "qwen3"}) {
    const auto config = parse(type, asked);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->two_way, type == "gemma3_text") << type;
  }
}

// The window reaches as many tokens in each direction as the config states where is_causal is
// false, and half as many with use_bidirectional_attention. With both, both rules are applied one
// after the other.
TEST(TwoWayConfig, WindowsReachInBothDirections) {
  const auto window = [](const std::string& type, const json& more) {
    const auto config = parse(type, more);
    return config ? config->sliding_window : std::nullopt;
  };
  EXPECT_EQ(window("mistral", {{"is_causal", true}}), 9);
  EXPECT_EQ(window("mistral", {{"is_causal", false}}), 10);
  EXPECT_EQ(window("gemma3_text", {{"is_causal", false}}), 10);
  EXPECT_EQ(window("gemma3_text", {{"use_bidirectional_attention", true}}), 5);
  EXPECT_EQ(window("gemma3_text", {{"use_bidirectional_attention", true}, {"is_causal", false}}),
            6);
}

}  // namespace
}  // namespace ferry::converters::model_config_two_way_test
