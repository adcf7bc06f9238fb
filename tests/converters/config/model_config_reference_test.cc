// Keys that transformers 5.23.0 reads in a config, and keys that it ignores, type by type.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "converters/family.h"
#include "tests/converters/reference_config_testing.h"

namespace ferry::converters::reference_config_test {
namespace {

const std::vector<std::string> kTypes = {
    "codegen",   "gemma",     "gemma2",       "gemma3_text",
    "glm",       "granite",   "lfm2",         "llama",
    "mistral",   "olmo2",     "phi3",         "qwen2",
    "qwen3",     "smollm3",   "qwen3_5_text", "qwen3_5_moe_text",
    "qwen3_moe", "qwen3_next"};

TEST(ReferenceConfig, WithoutCausalityAModelIsAnEncoder) {
  for (const std::string& type : kTypes) {
    const ModelConfig causal = parse(with(sizes(type), {{"is_causal", true}}));
    EXPECT_FALSE(causal.two_way || causal.is_encoder) << type;
    const bool attends = std::ranges::all_of(causal.layer_types, is_attention);
    for (const json& value : {json(false), json(nullptr), json(0)}) {
      const json both_ways = with(sizes(type), {{"is_causal", value}});
      if (!attends) {
        EXPECT_EQ(refusal(both_ways),
                  "4 config.json: 'is_causal' is not true, and layers without attention know one "
                  "direction only")
            << type << value.dump();
        continue;
      }
      const ModelConfig config = parse(both_ways);
      EXPECT_TRUE(config.two_way && config.is_encoder) << type << value.dump();
    }
  }
  const json inside = multimodal("gemma3", with(sizes("gemma3_text"), {{"is_causal", false}}));
  EXPECT_NE(refusal(inside).find("4 config.json: 'text_config.is_causal'"), std::string::npos);
  const json outside = with(multimodal("qwen3_5", sizes("qwen3_5_text")), {{"is_causal", false}});
  EXPECT_NE(refusal(outside).find("4 config.json: 'is_causal'"), std::string::npos);
}

TEST(ReferenceConfig, GemmaReadsHiddenActAndNoScalars) {
  EXPECT_EQ(parse(sizes("gemma")).activation, Activation::kGeluTanh);
  const json config = with(sizes("gemma"), {{"hidden_act", "relu"},
                                            {"hidden_activation", "gelu_pytorch_tanh"},
                                            {"query_pre_attn_scalar", 100},
                                            {"attn_logit_softcapping", 5.0},
                                            {"final_logit_softcapping", 3.0}});
  ConfigReport report;
  const ModelConfig c = parse(config, &report);
  EXPECT_EQ(c.activation, Activation::kRelu);
  EXPECT_EQ(c.scalars, (ScalarConfig{.embedding = 8.0}));
  EXPECT_EQ(report.unused_keys,
            (std::vector<std::string>{"attn_logit_softcapping", "final_logit_softcapping",
                                      "hidden_activation", "query_pre_attn_scalar"}));
  EXPECT_EQ(parse(with(sizes("gemma"), {{"hidden_act", "silu"}})).activation, Activation::kSilu);
}

TEST(ReferenceConfig, GemmaTwoAndThreeReadHiddenActivation) {
  for (const std::string type : {"gemma2", "gemma3_text"}) {
    EXPECT_EQ(parse(with(sizes(type), {{"hidden_act", "silu"}})).activation, Activation::kGeluTanh);
    EXPECT_EQ(parse(with(sizes(type), {{"hidden_activation", "gelu"}})).activation,
              Activation::kGelu);
  }
  const json capped = {{"attn_logit_softcapping", 5.0}, {"final_logit_softcapping", 3.0}};
  const ScalarConfig three = parse(with(sizes("gemma3_text"), capped)).scalars;
  EXPECT_FALSE(three.attention_softcap);
  EXPECT_EQ(three.logit_softcap, 3.0);
  // The multimodal class does not apply the cap of the logits.
  const json inside = multimodal("gemma3", with(sizes("gemma3_text"), capped));
  EXPECT_FALSE(parse(inside).scalars.logit_softcap);
}

TEST(ReferenceConfig, TheLayersOfGemmaTwoAlternate) {
  const json config = with(sizes("gemma2"), {{"sliding_window_pattern", 3}});
  EXPECT_EQ(parse(config).layer_types, parse(sizes("gemma2")).layer_types);
  EXPECT_NE(parse(with(sizes("gemma3_text"), {{"sliding_window_pattern", 3}})).layer_types,
            parse(sizes("gemma3_text")).layer_types);
}

TEST(ReferenceConfig, ListsOfLayersThatTheReferenceIgnoresAreRefused) {
  const json list = {"sliding_attention", "full_attention", "full_attention", "full_attention"};
  for (const std::string type :
       {"llama", "phi3", "olmo2", "granite", "glm", "gemma", "qwen3_moe"}) {
    json config = with(
        sizes(type), {{"layer_types", list}, {"use_sliding_window", true}, {"sliding_window", 8}});
    EXPECT_EQ(refusal(config),
              "4 config.json: 'layer_types' differs from what '" + type + "' does");
  }
  // A list that makes all layers slide is right where all layers slide.
  const json all = with(sizes("qwen3_moe"), {{"layer_types", json(4, "sliding_attention")},
                                             {"use_sliding_window", true}});
  EXPECT_EQ(parse(all).layer_types, std::vector<LayerType>(4, LayerType::kSlidingAttention));
}

TEST(ReferenceConfig, KindsOfLayersThatATypeDoesNotHaveAreRefused) {
  const auto said = [](const std::string& type, const std::string& kind) {
    return refusal(with(sizes(type), {{"layer_types", json(4, kind)}, {"sliding_window", 8}}));
  };
  EXPECT_EQ(said("lfm2", "sliding_attention"),
            "4 config.json: 'layer_types' has sliding attention");
  EXPECT_EQ(said("qwen3_next", "sliding_attention"),
            "4 config.json: 'layer_types' has sliding attention");
  EXPECT_EQ(said("lfm2", "linear_attention"), "4 config.json: 'layer_types' has linear attention");
  EXPECT_EQ(said("qwen3", "conv"), "4 config.json: 'layer_types' has short convolutions");
  EXPECT_EQ(said("qwen3", "sliding_attention"),
            "3 config.json: 'sliding_window' is not set or not used, but layer_types has sliding "
            "attention");
}

TEST(ReferenceConfig, AWindowThatIsNotUsedMayBeAnything) {
  const json config = with(sizes("qwen3"), {{"sliding_window", 0}});
  EXPECT_FALSE(parse(config).sliding_window);
}

TEST(ReferenceConfig, NamesOfActivations) {
  const std::vector<std::pair<std::string, Activation>> names = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_python", Activation::kGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_python_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_accurate", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kRelu2},
      {"quick_gelu", Activation::kQuickGelu}};
  for (const auto& [name, activation] : names) {
    EXPECT_EQ(parse(with(sizes("llama"), {{"hidden_act", name}})).activation, activation) << name;
  }
  for (const std::string name : {"relu6", "gelu_10", "mish", "SiLU", ""}) {
    EXPECT_EQ(refusal(with(sizes("llama"), {{"hidden_act", name}})),
              "4 config.json: 'hidden_act' is '" + name +
                  "'; silu, gelu, gelu_pytorch_tanh, relu, relu2 and quick_gelu are supported");
  }
  EXPECT_EQ(parse(with(sizes("lfm2"), {{"hidden_act", "relu"}})).activation, Activation::kSilu);
  const json codegen = {{"activation_function", "gelu"}, {"hidden_act", "relu"}};
  EXPECT_EQ(parse(with(sizes("codegen"), codegen)).activation, Activation::kGelu);
}

struct Defaults {
  const char* type;
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions;
  bool tied;
};

// The expected numbers are those of transformers' configuration classes.
TEST(ReferenceConfig, AConfigMayLeaveOutAllThatItsClassHasAsADefault) {
  const Defaults rows[] = {
      {"llama", 32000, 4096, 11008, 32, 32, 32, 128, 2048, false},
      {"mistral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, false},
      {"phi3", 32064, 3072, 8192, 32, 32, 32, 96, 4096, false},
      {"glm", 151552, 4096, 13696, 40, 32, 2, 128, 131072, false},
      {"lfm2", 65536, 2560, 8192, 32, 32, 8, 80, 128000, true},
      {"codegen", 50400, 4096, 16384, 28, 16, 16, 256, 2048, false},
      {"qwen2", 151936, 4096, 22016, 32, 32, 32, 128, 32768, false},
      {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, false},
      {"gemma", 256000, 3072, 24576, 28, 16, 16, 256, 8192, true},
      {"gemma2", 256000, 2304, 9216, 26, 8, 4, 256, 8192, true},
      {"gemma3_text", 262208, 2304, 9216, 26, 8, 4, 256, 131072, true},
      {"granite", 32000, 4096, 11008, 32, 32, 32, 128, 2048, false},
      {"olmo2", 50304, 4096, 11008, 32, 32, 32, 128, 2048, false},
      {"smollm3", 128256, 2048, 11008, 36, 16, 4, 128, 32768, true},
      {"qwen3_5_text", 248320, 4096, 12288, 32, 16, 4, 256, 32768, false},
      {"qwen3_5_moe_text", 248320, 2048, 0, 40, 16, 2, 256, 32768, false},
      {"qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 64, 32768, false},
      {"qwen3_next", 151936, 2048, 5632, 48, 16, 2, 256, 32768, false},
  };
  EXPECT_EQ(std::size(rows), kTypes.size());
  for (const Defaults& row : rows) {
    const ModelConfig c = parse({{"model_type", row.type}});
    const Defaults found = {
        row.type,    c.vocab_size,   c.hidden_size, c.intermediate_size, c.num_layers,
        c.num_heads, c.num_kv_heads, c.head_dim,    c.max_positions,     c.tie_word_embeddings};
    const auto numbers = [](const Defaults& d) {
      return std::vector<int64_t>{d.vocab,    d.hidden,   d.intermediate, d.layers, d.heads,
                                  d.kv_heads, d.head_dim, d.positions,    d.tied};
    };
    EXPECT_EQ(numbers(found), numbers(row)) << row.type;
  }
}

TEST(ReferenceConfig, ANullIsNotADefault) {
  EXPECT_EQ(parse(with(sizes("qwen2"), {{"num_key_value_heads", nullptr}})).num_kv_heads, 4);
  EXPECT_FALSE(parse(with(sizes("mistral"), {{"sliding_window", nullptr}})).sliding_window);
  EXPECT_EQ(refusal(with(sizes("llama"), {{"hidden_size", nullptr}})),
            "3 config.json: 'hidden_size' is missing");
}

TEST(ReferenceConfig, NamesThatWinOverOthers) {
  const json both = {{"hidden_size", 128},
                     {"max_position_embeddings", 99},
                     {"intermediate_size", 3},
                     {"num_key_value_heads", 3}};
  const ModelConfig codegen = parse(with(sizes("codegen"), both));
  EXPECT_EQ(codegen.hidden_size, 128);
  EXPECT_EQ(codegen.max_positions, 99);
  EXPECT_EQ(codegen.intermediate_size, 512);
  EXPECT_EQ(codegen.num_kv_heads, 4);
  const json lfm2 = {{"block_ff_dim", 48},     {"block_auto_adjust_ff_dim", false},
                     {"tie_embedding", false}, {"tie_word_embeddings", true},
                     {"norm_eps", 1e-3},       {"rms_norm_eps", 1e-2}};
  EXPECT_EQ(parse(with(sizes("lfm2"), lfm2)).intermediate_size, 48);
  EXPECT_FALSE(parse(with(sizes("lfm2"), lfm2)).tie_word_embeddings);
  EXPECT_EQ(parse(with(sizes("lfm2"), lfm2)).rms_norm_eps, 1e-3);
  const json experts = {{"num_experts", 16}, {"num_local_experts", 12}};
  EXPECT_EQ(parse(with(sizes("qwen3_moe"), experts)).moe.experts, 12);
  EXPECT_EQ(parse(with(sizes("qwen3_next"), experts)).moe.experts, 16);
}

TEST(ReferenceConfig, BiasesThatATypeDoesNotHave) {
  const json biased = {{"attention_bias", true}, {"mlp_bias", true}};
  for (const std::string type : {"mistral", "phi3", "lfm2", "codegen"}) {
    ConfigReport report;
    const ModelConfig c = parse(with(sizes(type), biased), &report);
    EXPECT_FALSE(c.attention_bias || c.mlp_bias) << type;
    EXPECT_EQ(report.unused_keys, (std::vector<std::string>{"attention_bias", "mlp_bias"})) << type;
  }
  EXPECT_FALSE(parse(with(sizes("qwen3"), biased)).mlp_bias);
  EXPECT_TRUE(parse(with(sizes("qwen3"), biased)).attention_bias);
  EXPECT_TRUE(parse(with(sizes("smollm3"), biased)).mlp_bias);
}

TEST(ReferenceConfig, AnUnknownOuterTypeIsNamed) {
  for (const std::string type : {"llava_next_video", "kosmos-2", "llama"}) {
    EXPECT_EQ(
        refusal(multimodal(type, sizes("llama")))
            .find("4 config.json: 'model_type' is '" + type + "': not supported; supported are "),
        0U)
        << type;
  }
  const std::string said = refusal({{"model_type", "albert"}});
  EXPECT_EQ(said.find("4 config.json: 'model_type' is 'albert': not supported"), 0U) << said;
  EXPECT_LT(said.size(), 1000U);
  EXPECT_EQ(refusal({{"model_type", "gemma3"}}), "3 config.json: 'text_config' is missing");
  EXPECT_EQ(refusal(multimodal("gemma3", sizes("llama"))),
            "4 config.json: 'text_config.model_type' is 'llama': the text part of gemma3 is "
            "gemma3_text");
}

TEST(ReferenceConfig, TheOuterConfigTiesTheHeadOfAMultimodalModel) {
  const auto tied = [](const std::string& type, const json& inner, const json& outer) {
    const std::string text = type == "gemma3" ? "gemma3_text" : type + "_text";
    return parse(with(multimodal(type, with(sizes(text), inner)), outer)).tie_word_embeddings;
  };
  const json yes = {{"tie_word_embeddings", true}}, no = {{"tie_word_embeddings", false}};
  EXPECT_TRUE(tied("gemma3", no, json::object()));
  EXPECT_FALSE(tied("gemma3", yes, no));
  EXPECT_FALSE(tied("gemma3", yes, {{"tie_word_embeddings", nullptr}}));
  EXPECT_FALSE(tied("qwen3_5", yes, json::object()));
  EXPECT_TRUE(tied("qwen3_5_moe", no, yes));
}

TEST(ReferenceConfig, KeysThatNothingUsedAreListed) {
  const json config =
      with(sizes("llama"),
           {{"sliding_window", 8},
            {"some_new_key", {{"a", 1}}},
            {"unset", nullptr},
            {"torch_dtype", "bfloat16"},
            {"architectures", {"LlamaForCausalLM"}},
            {"rope_scaling",
             {{"type", "linear"}, {"factor", 2.0}, {"finetuned", true}, {"beta_fast", 3}}},
            {"rope_parameters", {{"rope_type", "default"}}}});
  ConfigReport report;
  parse(config, &report);
  EXPECT_EQ(report.unused_keys,
            (std::vector<std::string>{"rope_parameters", "rope_scaling.beta_fast",
                                      "rope_scaling.finetuned", "sliding_window", "some_new_key"}));
  const json outer =
      with(multimodal("gemma3", with(sizes("gemma3_text"), {{"query_scale", 1}})),
           {{"vision_config", {{"depth", 1}}}, {"hidden_size", 3}, {"image_token_index", 4}});
  parse(outer, &report);
  EXPECT_EQ(report.unused_keys,
            (std::vector<std::string>{"hidden_size", "text_config.query_scale"}));
  parse(sizes("qwen3"), &report);
  EXPECT_TRUE(report.unused_keys.empty());
}

TEST(ReferenceConfig, HeadsMatterOnlyWhereALayerAttends) {
  const json config = with(sizes("qwen3_5_text"), {{"num_attention_heads", 3}, {"head_dim", 5}});
  EXPECT_EQ(refusal(with(config, {{"layer_types", json(4, "linear_attention")}})), "accepted");
  EXPECT_EQ(refusal(config),
            "3 config.json: 'num_key_value_heads' is 2, which does not divide 3 heads");
}

TEST(ReferenceConfig, GeluOfGemmaIsItsTanhApproximation) {
  EXPECT_EQ(parse(with(sizes("gemma"), {{"hidden_act", "gelu"}})).activation,
            Activation::kGeluTanh);
  EXPECT_EQ(parse(with(sizes("gemma"), {{"hidden_act", "gelu_python"}})).activation,
            Activation::kGelu);
  EXPECT_EQ(parse(with(sizes("gemma2"), {{"hidden_activation", "gelu"}})).activation,
            Activation::kGelu);
}

TEST(ReferenceConfig, LayersWithKeysOfTheirOwnAreNotSupported) {
  const json own = {{"per_layer_config", {{"1", {{"intermediate_size", 48}}}}}};
  EXPECT_EQ(refusal(with(sizes("llama"), own)),
            "4 config.json: 'per_layer_config' is present: layers with keys of their own are not "
            "supported");
  const json none = {{"per_layer_config", json::object()}};
  EXPECT_EQ(refusal(with(sizes("llama"), none)), "accepted");
}

TEST(ReferenceConfig, LinearAttentionAndMambaAreOneNameForTheTypeThatHasIt) {
  for (const char* name : {"mamba", "linear_attention"}) {
    const json listed = {{"layer_types", {name, "attention", "full_attention", name}},
                         {"shared_intermediate_size", 48},
                         {"mamba_n_heads", 8},
                         {"mamba_d_state", 16}};
    const ModelConfig granite = parse(with(sizes("granitemoehybrid"), listed));
    EXPECT_EQ(granite.layer_types[0], LayerType::kMamba) << name;
    EXPECT_EQ(granite.layer_types[1], LayerType::kFullAttention) << name;
    const ModelConfig qwen = parse(with(sizes("qwen3_5_text"), listed));
    EXPECT_EQ(qwen.layer_types[3], LayerType::kLinearAttention) << name;
    EXPECT_EQ(refusal(with(sizes("llama"), listed)),
              "4 config.json: 'layer_types' differs from what 'llama' does");
  }
}

TEST(ReferenceConfig, HalfAWindowOfNothingIsTheTokenItself) {
  const json both_ways = with(sizes("gemma3_text"), {{"use_bidirectional_attention", true}});
  for (const int window : {0, 1}) {
    EXPECT_EQ(parse(with(both_ways, {{"sliding_window", window}})).sliding_window, 1) << window;
  }
  EXPECT_EQ(refusal(with(sizes("gemma3_text"), {{"sliding_window", 0}})),
            "3 config.json: 'sliding_window' is 0, not from 1 to 2147483647");
}

// model_config_defaults_test.cc tests the other types.
TEST(ReferenceConfig, FamiliesServeTheseTypes) {
  std::vector<std::string> served;
  for (const FamilySpec* family : all_families()) {
    for (const ModelType& type : family->types) served.emplace_back(type.name);
  }
  for (const std::string& type : kTypes) {
    EXPECT_EQ(std::ranges::count(served, type), 1) << type;
    EXPECT_NE(parse(sizes(type)).family, nullptr) << type;
  }
}

// -- bidirectional attention

Result<ModelConfig> parse_windowed(const std::string& type, const json& more) {
  const json config = with(with(sizes(type), {{"sliding_window", 9}}), more);
  return parse_model_config(config.dump(), "", "config.json");
}

TEST(TwoWayConfig, OnlyGemmaReadsItsOwnKey) {
  const json asked = {{"use_bidirectional_attention", true}};
  for (const std::string type : {"gemma", "gemma2"}) {
    const auto config = parse_windowed(type, asked);
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  }
  for (const std::string type : {"gemma3_text", "llama", "qwen3"}) {
    const auto config = parse_windowed(type, asked);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->two_way, type == "gemma3_text") << type;
  }
}

// The window reaches as many tokens in each direction as the config states where is_causal is
// false, and half as many with use_bidirectional_attention. With both, both rules are applied one
// after the other.
TEST(TwoWayConfig, EncodersReadNeitherKey) {
  for (const std::string type :
       {"bert", "distilbert", "mpnet", "nomic_bert", "eurobert", "embedding_gemma2_text"}) {
    for (const bool causal : {true, false}) {
      const ModelConfig config = parse(with(sizes(type), {{"is_causal", causal}}));
      EXPECT_TRUE(config.two_way && config.is_encoder && config.only_encodes) << type;
    }
  }
  EXPECT_EQ(parse(with(sizes("modernbert"), {{"local_attention", 9}})).sliding_window, 5);
  EXPECT_EQ(refusal(with(sizes("modernbert"), {{"sliding_window", 9}})),
            "4 config.json: 'sliding_window' is stated: not supported in modernbert");
}

TEST(EncoderConfig, WhatWouldMakeAnotherModelIsRefused) {
  EXPECT_EQ(refusal(with(sizes("bert"), {{"is_decoder", true}})),
            "4 config.json: 'is_decoder' is true: decoders are not supported");
  EXPECT_EQ(refusal(with(sizes("roberta"), {{"add_cross_attention", true}})),
            "4 config.json: 'add_cross_attention' is true: decoders are not supported");
  EXPECT_EQ(
      refusal(with(sizes("bert"), {{"position_embedding_type", "relative_key"}})),
      "4 config.json: 'position_embedding_type' is 'relative_key': only absolute is supported");
  EXPECT_EQ(refusal(with(sizes("mpnet"), {{"relative_attention_num_buckets", 31}})),
            "4 config.json: 'relative_attention_num_buckets' is less than 32: not supported");
}

// Positions begin behind the number of the padding token.
TEST(EncoderConfig, ThePaddingTokenTakesPositions) {
  const json config = with(sizes("roberta"), {{"max_position_embeddings", 40}});
  EXPECT_EQ(parse(config).max_positions, 38);
  EXPECT_EQ(parse(with(config, {{"pad_token_id", 5}})).max_positions, 34);
  EXPECT_EQ(refusal(with(config, {{"pad_token_id", 39}})),
            "3 config.json: 'max_position_embeddings' is 40: positions begin with 40");
  EXPECT_EQ(refusal(with(config, {{"pad_token_id", nullptr}})),
            "3 config.json: 'pad_token_id' is missing");
}

TEST(TwoWayConfig, WindowsReachInBothDirections) {
  const auto window = [](const std::string& type, const json& more) {
    const auto config = parse_windowed(type, more);
    return config ? config->sliding_window : std::nullopt;
  };
  EXPECT_EQ(window("mistral", {{"is_causal", true}}), 9);
  EXPECT_EQ(window("mistral", {{"is_causal", false}}), 10);
  EXPECT_EQ(window("gemma3_text", {{"is_causal", false}}), 10);
  EXPECT_EQ(window("gemma3_text", {{"use_bidirectional_attention", true}}), 5);
  EXPECT_EQ(window("gemma3_text", {{"use_bidirectional_attention", true}, {"is_causal", false}}),
            6);
  EXPECT_EQ(window("embedding_gemma2_text", json::object()), 10);
}

}  // namespace
}  // namespace ferry::converters::reference_config_test
