// Each rule of version_rules.cc is tested with a config that depends on the version of the
// reference, and with one that does not.
#include "converters/config/version_rules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ferry::converters::version_rules_test {
namespace {

using nlohmann::json;

std::vector<std::string> keys_of(const json& config) {
  ConfigReport report;
  const auto parsed = parse_model_config(config.dump(), "", "config.json", &report);
  EXPECT_TRUE(parsed) << parsed.error().message;
  std::vector<std::string> keys;
  for (const VersionReading& reading : report.version_readings) keys.push_back(reading.key);
  return keys;
}

json with(json config, const json& more) {
  config.update(more);
  return config;
}

struct Row {
  const char* type;
  json more;     // makes the config depend on the version
  json instead;  // replaces some of `more`, and makes the config independent
  std::vector<std::string> keys;
};

const json kYarn = {{"rope_type", "yarn"},
                    {"factor", 40.0},
                    {"original_max_position_embeddings", 64},
                    {"mscale", 0.707},
                    {"mscale_all_dim", 0.707}};
const json kLinear = {{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 1.0}};

std::vector<Row> rows() {
  const json chosen = {{"num_experts_per_tok", 2}};
  const json vocab = with(chosen, {{"vocab_size", 50}});
  return {
      {"deepseek_v2",
       with(vocab, {{"rope_scaling", kYarn}}),
       {{"rope_scaling", with(kYarn, {{"mscale_all_dim", 0}})}},
       {"rope_parameters.mscale_all_dim"}},
      {"deepseek_v2", chosen, vocab, {"vocab_size"}},
      {"dbrx",
       {{"attn_config", {{"rope_theta", 500000}}}},
       {{"rope_theta", 500000}},
       {"attn_config.rope_theta"}},
      {"olmo3",
       {{"rope_theta", 500000}, {"rope_scaling", kYarn}},
       {{"rope_scaling", nullptr}},
       {"rope_scaling"}},
      {"olmo3",
       {{"rope_theta", 500000}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
       {{"rope_scaling", nullptr}},
       {"rope_scaling.type"}},
      {"olmo3",
       {{"rope_parameters", kYarn}},
       {{"rope_parameters", {{"full_attention", kYarn}, {"sliding_attention", json::object()}}}},
       {"rope_parameters"}},
      {"olmo3", {{"rope_theta", 10000}}, {{"rope_theta", 500000}}, {"rope_theta"}},
      {"olmo3", json::object(), {{"rope_theta", 500000}}, {"rope_theta"}},
      {"gemma", {{"hidden_act", "gelu"}}, {{"hidden_act", "gelu_pytorch_tanh"}}, {"hidden_act"}},
      {"granitemoehybrid",
       {{"layer_types", json(32, "linear_attention")}},
       {{"layer_types", json(32, "mamba")}},
       {"layer_types"}},
      {"granitemoehybrid", {{"mamba_n_groups", 2}}, {{"mamba_n_groups", 1}}, {"mamba_n_groups"}},
      {"glm",
       {{"rope_parameters", kLinear}},
       {{"partial_rotary_factor", 1.0}},
       {"rope_parameters.partial_rotary_factor"}},
      {"gpt_oss", {{"swiglu_alpha", 1.0}}, {{"swiglu_alpha", 1.702}}, {"swiglu_alpha"}},
      {"gpt_oss", {{"swiglu_limit", 3.0}}, {{"swiglu_limit", 7}}, {"swiglu_limit"}},
      {"qwen3_5_text", {{"hidden_act", "gelu"}}, {{"hidden_act", "silu"}}, {"hidden_act"}},
      {"qwen3_next",
       {{"hidden_act", "gelu"}, {"num_experts", 0}},
       {{"hidden_act", "silu"}},
       {"hidden_act"}},
  };
}

TEST(VersionRules, EachSeesWhatDependsOnTheVersionAndNothingElse) {
  for (const Row& row : rows()) {
    const json config = with({{"model_type", row.type}}, row.more);
    EXPECT_EQ(keys_of(config), row.keys) << config.dump();
    EXPECT_EQ(keys_of(with(config, row.instead)), std::vector<std::string>{}) << config.dump();
  }
}

TEST(VersionRules, ATieInsideOfTextConfigCountsInTheNewerVersion) {
  const json inside = {{"text_config", {{"tie_word_embeddings", true}}}};
  for (const char* type : {"qwen2_vl", "qwen2_5_vl"}) {
    const json config = with({{"model_type", type}}, inside);
    EXPECT_EQ(keys_of(config), std::vector<std::string>{"tie_word_embeddings"});
    EXPECT_TRUE(parse_model_config(config.dump(), "", "c")->tie_word_embeddings);
    EXPECT_TRUE(keys_of(with(config, {{"tie_word_embeddings", true}})).empty());
  }
  EXPECT_TRUE(keys_of({{"model_type", "qwen2_vl"}, {"tie_word_embeddings", true}}).empty());
}

TEST(VersionRules, ANoteIsOneLine) {
  EXPECT_EQ(
      version_note({"hidden_act", "means this", "means that"}, "dir/config.json"),
      "dir/config.json: 'hidden_act' means this, as in transformers 5.23.0; in 5.12.1 it means "
      "that");
}

}  // namespace
}  // namespace ferry::converters::version_rules_test
