// Families with layer norms: the defaults of their classes in transformers 5.23.0, keys that only
// they read, and the layouts of their weights.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "converters/family.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"
#include "tests/converters/names_source.h"

namespace ferry::converters::layout_keys_test {
namespace {

using nlohmann::json;

json of(const std::string& type, const json& more = json::object()) {
  json config = {{"model_type", type}};
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

struct Defaults {
  const char* type;
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions;
  int64_t rotary;  // 0: no RoPE
  double theta;
  bool tied, bias;  // bias: q, k and v have biases
  Activation activation;
};

TEST(LayerNormFamilies, AConfigMayLeaveOutAllThatItsClassHasAsADefault) {
  using enum Activation;
  const Defaults rows[] = {
      {"arcee", 32000, 2560, 18432, 32, 32, 32, 80, 4096, 80, 1e4, false, false, kRelu2},
      {"bloom", 250880, 64, 256, 2, 8, 8, 8, 2048, 0, 1e4, true, true, kGeluTanh},
      {"falcon", 65024, 4544, 18176, 32, 71, 1, 64, 2048, 64, 1e4, true, false, kGelu},
      {"gpt_bigcode", 50257, 768, 3072, 12, 12, 1, 64, 1024, 0, 1e4, true, true, kGeluTanh},
      {"gpt_neo", 50257, 2048, 8192, 24, 16, 16, 128, 2048, 0, 1e4, true, false, kGeluTanh},
      {"gptj", 50400, 4096, 16384, 28, 16, 16, 256, 2048, 64, 1e4, false, false, kGeluTanh},
      {"mpt", 50368, 2048, 8192, 24, 16, 16, 128, 2048, 0, 1e4, true, false, kGelu},
      {"olmo", 50304, 4096, 11008, 32, 32, 32, 128, 2048, 128, 1e4, false, false, kSilu},
      {"openai-gpt", 40478, 768, 3072, 12, 12, 12, 64, 512, 0, 1e4, true, true, kGeluTanh},
      {"persimmon", 262144, 4096, 16384, 36, 64, 64, 64, 16384, 32, 1e4, false, true, kRelu2},
      {"cohere", 256000, 8192, 22528, 40, 64, 64, 128, 8192, 128, 5e5, true, false, kSilu},
      {"cohere2", 256000, 8192, 22528, 40, 64, 64, 128, 8192, 128, 1e4, true, false, kSilu},
      {"gpt2", 50257, 768, 3072, 12, 12, 12, 64, 1024, 0, 1e4, true, true, kGeluTanh},
      {"gpt_neox", 50432, 6144, 24576, 44, 64, 64, 96, 2048, 24, 1e4, false, true, kGelu},
      {"nemotron", 256000, 6144, 24576, 32, 48, 48, 128, 4096, 64, 1e4, false, false, kRelu2},
      {"opt", 50272, 768, 3072, 12, 12, 12, 64, 2048, 0, 1e4, true, true, kRelu},
      {"phi", 51200, 2048, 8192, 24, 32, 32, 64, 2048, 32, 1e4, false, true, kGeluTanh},
      {"stablelm", 50304, 2560, 6912, 32, 32, 32, 80, 4096, 20, 1e4, false, false, kSilu},
      {"starcoder2", 49152, 3072, 12288, 30, 24, 2, 128, 4096, 128, 1e4, true, true, kGeluTanh},
  };
  for (const Defaults& row : rows) {
    SCOPED_TRACE(row.type);
    const ModelConfig c = parse(of(row.type));
    EXPECT_EQ(c.vocab_size, row.vocab);
    EXPECT_EQ(c.hidden_size, row.hidden);
    EXPECT_EQ(c.intermediate_size, row.intermediate);
    EXPECT_EQ(c.num_layers, row.layers);
    EXPECT_EQ(c.num_heads, row.heads);
    EXPECT_EQ(c.num_kv_heads, row.kv_heads);
    EXPECT_EQ(c.head_dim, row.head_dim);
    EXPECT_EQ(c.max_positions, row.positions);
    EXPECT_EQ(c.has_rope() ? c.rotary_dim() : 0, row.rotary);
    EXPECT_EQ(c.rope.theta, row.theta);
    EXPECT_EQ(c.tie_word_embeddings, row.tied);
    EXPECT_EQ(c.attention_bias, row.bias);
    EXPECT_EQ(c.activation, row.activation);
    EXPECT_EQ(c.rms_norm_eps, 1e-5);
  }
}

TEST(LayerNormFamilies, EpsAndBiasesHaveNamesOfTheirOwn) {
  const std::pair<const char*, const char*> eps[] = {
      {"phi", "layer_norm_eps"},    {"gpt_neox", "layer_norm_eps"}, {"stablelm", "layer_norm_eps"},
      {"cohere", "layer_norm_eps"}, {"cohere2", "layer_norm_eps"},  {"starcoder2", "norm_epsilon"},
      {"nemotron", "norm_eps"},     {"gpt2", "layer_norm_epsilon"}, {"arcee", "rms_norm_eps"}};
  for (const auto& [type, key] : eps) {
    EXPECT_EQ(parse(of(type, {{key, 0.25}})).rms_norm_eps, 0.25) << type;
  }
  EXPECT_EQ(parse(of("opt", {{"layer_norm_eps", 0.25}})).rms_norm_eps, 1e-5);
  EXPECT_FALSE(parse(of("starcoder2", {{"use_bias", false}})).attention_bias);
  EXPECT_FALSE(parse(of("opt", {{"enable_bias", false}})).attention_bias);
  EXPECT_TRUE(parse(of("stablelm", {{"use_qkv_bias", true}})).attention_bias);
}

TEST(LayerNormFamilies, GptNeoxPrefersThePartialFactorInsideTheObject) {
  EXPECT_EQ(parse(of("gpt_neox", {{"rotary_pct", 0.5}, {"rotary_emb_base", 777}})).rope.theta, 777);
  EXPECT_EQ(parse(of("gpt_neox", {{"rotary_pct", 0.5}})).rotary_dim(), 48);
  for (const char* kind : {"default", "linear"}) {
    const json rope = {{"rope_type", kind}, {"factor", 2.0}, {"partial_rotary_factor", 1.0}};
    const ModelConfig c = parse(of("gpt_neox", {{"rotary_pct", 0.5}, {"rope_parameters", rope}}));
    EXPECT_EQ(c.rotary_dim(), 96) << kind;
  }
}

TEST(LayerNormFamilies, OnlyTheSlidingLayersOfCohere2HaveRope) {
  const ModelConfig c = parse(of("cohere2", {{"num_hidden_layers", 5}}));
  EXPECT_EQ(c.rope_layers, (std::vector<bool>{true, true, true, false, true}));
  const json listed = {{"num_hidden_layers", 2},
                       {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_EQ(parse(of("cohere2", listed)).rope_layers, (std::vector<bool>{false, true}));
}

TEST(LayerNormFamilies, WhatCannotBeObeyedIsRefused) {
  EXPECT_EQ(refusal(of("cohere2", {{"sliding_window", nullptr}})),
            "3 config.json: 'sliding_window' is null");
  for (const char* type : {"cohere", "cohere2"}) {
    EXPECT_EQ(refusal(of(type, {{"logit_scale", nullptr}})),
              "3 config.json: 'logit_scale' is null");
  }
  EXPECT_EQ(refusal(of("gpt2", {{"add_cross_attention", true}})),
            "4 config.json: 'add_cross_attention' is true: not supported");
  EXPECT_EQ(refusal(of("gpt2", {{"add_cross_attention", false}})), "accepted");
  for (const char* type : {"gpt_neox", "stablelm"}) {
    EXPECT_NE(refusal(of(type, {{"head_dim", 16}})).find("3 config.json: 'head_dim' is 16: "),
              std::string::npos);
  }
  for (const char* type : {"gpt2", "opt"}) {  // these types ignore head_dim
    EXPECT_EQ(refusal(of(type, {{"head_dim", 16}})), "accepted");
  }
  EXPECT_EQ(refusal(of("opt", {{"word_embed_proj_dim", 0}})),
            "3 config.json: 'word_embed_proj_dim' is 0, not from 1 to 16777216");
}

// -- layouts

ModelConfig tiny() {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = 2;
  config.intermediate_size = 3;
  config.num_heads = config.num_kv_heads = 2;
  config.head_dim = 4;
  config.max_positions = 3;
  return config;
}

MappedKeys map(std::vector<TensorEntry> entries, const std::vector<KeyRule>& rules) {
  const Names source(std::move(entries));
  return map_keys(source, key_by_name(source), tiny(), rules, {}, {}).value();
}

TensorEntry entry(const std::string& name, Shape shape) {
  return {.name = name, .dtype = DType::kF32, .shape = std::move(shape)};
}

// Returns the elements of the source that a weight is made of, in order.
std::vector<int64_t> elements(const MappedKeys& mapped, const std::string& name) {
  std::vector<int64_t> all;
  const graph::Weight* weight = mapped.weights.find(name);
  if (weight == nullptr) return all;
  for (const StridedPiece& piece : weight->recipe.pieces) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) all.push_back(offset + i);
    });
  }
  return all;
}

TEST(LayoutKeys, TheColumnsOfAConv1dBecomeRows) {
  const std::vector<KeyRule> rules = conv1d_rules("h.{i}.", tiny());
  const MappedKeys mapped =
      map({entry("h.0.attn.c_attn.weight", {2, 6}), entry("h.0.attn.c_attn.bias", {6}),
           entry("h.0.mlp.c_proj.weight", {3, 2})},
          rules);
  EXPECT_TRUE(mapped.problems.empty());
  // c_attn has the columns q, k and v of two elements each:
  //   [ 0  1 |  2  3 |  4  5 ]
  //   [ 6  7 |  8  9 | 10 11 ]
  EXPECT_EQ(elements(mapped, "layers.0.attention.wq.weight"), (std::vector<int64_t>{0, 6, 1, 7}));
  EXPECT_EQ(elements(mapped, "layers.0.attention.wk.weight"), (std::vector<int64_t>{2, 8, 3, 9}));
  EXPECT_EQ(elements(mapped, "layers.0.attention.wv.weight"), (std::vector<int64_t>{4, 10, 5, 11}));
  EXPECT_EQ(elements(mapped, "layers.0.attention.wk.bias"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(elements(mapped, "layers.0.feed_forward.w2.weight"),
            (std::vector<int64_t>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(mapped.weights.find("layers.0.feed_forward.w2.weight")->recipe.output().shape,
            (Shape{2, 3}));

  for (const Shape& shape : {Shape{6, 2}, Shape{2, 5}, Shape{12}, Shape{1, 2, 6}}) {
    const MappedKeys wrong = map({entry("h.0.attn.c_attn.weight", shape)}, rules);
    ASSERT_EQ(wrong.problems.size(), 1U);
    EXPECT_EQ(wrong.problems[0].message,
              "shape: 'h.0.attn.c_attn.weight' " + to_string(shape) + ", the config wants [2, 6]");
  }
}

TEST(StandardKeys, TheFirstRowsOfPositionsAreSkipped) {
  const std::vector<KeyRule> rules = {position_rule("p", /*skipped=*/2)};
  const MappedKeys mapped = map({entry("p", {5, 2})}, rules);
  EXPECT_EQ(elements(mapped, "position_embeddings.weight"),
            (std::vector<int64_t>{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(map({entry("p", {3, 2})}, rules).problems.size(), 1U);
}

TEST(LayoutKeys, NormsOfHeadsFollowTheOrderOfTheRotatedRows) {
  const MappedKeys mapped =
      map({entry("a.q_norm.weight", {2, 4})}, paired_head_norm_rules("a.", tiny()));
  EXPECT_EQ(elements(mapped, "layers.0.attention.q_norm.weight"),
            (std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(LayoutKeys, NormsOfHeadsAreStacked) {
  const std::vector<KeyRule> rules = separate_head_norm_rules("l.{i}.", tiny());
  const std::string first = "l.0.q_layernorm.norms.0.weight";
  const std::string second = "l.0.q_layernorm.norms.1.weight";
  const MappedKeys mapped = map({entry(second, {4}), entry(first, {4})}, rules);
  EXPECT_TRUE(mapped.problems.empty());
  const graph::Weight* stacked = mapped.weights.find("layers.0.attention.q_norm.weight");
  ASSERT_NE(stacked, nullptr);
  EXPECT_EQ(stacked->recipe.output().shape, (Shape{2, 4}));
  EXPECT_EQ(stacked->recipe.pieces,
            (std::vector<StridedPiece>{run_piece(1, 0, 4), run_piece(0, 0, 4)}));

  const MappedKeys missing = map({entry(first, {4})}, rules);
  ASSERT_EQ(missing.problems.size(), 1U);
  EXPECT_EQ(missing.problems[0].kind, KeyProblem::Kind::kMissing);
  EXPECT_EQ(missing.problems[0].key, second);
  const MappedKeys excess = map({entry("l.0.q_layernorm.norms.2.weight", {4})}, rules);
  ASSERT_EQ(excess.problems.size(), 1U);
  EXPECT_NE(excess.problems[0].message.find("(there are 2)"), std::string::npos)
      << excess.problems[0].message;
}

}  // namespace
}  // namespace ferry::converters::layout_keys_test
