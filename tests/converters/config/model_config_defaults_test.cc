// Configs of types whose classes have no test of their own in model_config_reference_test.cc: the
// defaults of transformers 5.23.0 for absent keys, and keys that only these types read.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "converters/blocks/disentangled_attention.h"
#include "converters/config/model_config.h"
#include "converters/family.h"

namespace ferry::converters::model_config_defaults_test {
namespace {

using nlohmann::json;

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

json type(const std::string& name, const json& more = json::object()) {
  json config = {{"model_type", name}};
  config.update(more);
  return config;
}

struct Defaults {
  const char* type;
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions;
  double eps, theta;
  bool tied;
};

TEST(ReferenceDefaults, AConfigMayLeaveOutAllThatItsClassHasAsADefault) {
  const Defaults rows[] = {
      {"mixtral", 32000, 4096, 0, 32, 32, 8, 128, 131072, 1e-5, 1e6, false},
      {"qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 128, 32768, 1e-6, 1e4, false},
      {"olmoe", 50304, 2048, 2048, 16, 16, 16, 128, 4096, 1e-5, 1e4, false},
      {"seed_oss", 155136, 4096, 27648, 64, 80, 8, 128, 524288, 1e-6, 1e4, false},
      {"ernie4_5", 103424, 1024, 3072, 18, 16, 2, 128, 131072, 1e-5, 5e5, true},
      {"glm4", 151552, 4096, 13696, 40, 32, 2, 128, 131072, 1.5625e-7, 1e4, false},
      {"exaone4", 102400, 4096, 16384, 32, 32, 32, 128, 2048, 1e-5, 1e4, false},
      {"olmo3", 50304, 4096, 11008, 32, 32, 32, 128, 2048, 1e-5, 5e5, false},
      {"ministral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 1e-6, 1e4, false},
      {"ministral3", 131072, 4096, 14336, 34, 32, 8, 128, 262144, 1e-5, 1e6, false},
      {"hunyuan_v1_dense", 290943, 4096, 11008, 32, 32, 32, 128, 2048, 1e-5, 1e4, false},
      {"hunyuan_v1_moe", 290943, 4096, 0, 32, 32, 32, 128, 2048, 1e-5, 1e4, false},
      {"apertus", 131072, 4096, 14336, 32, 32, 32, 128, 65536, 1e-5, 1.2e7, false},
      {"dbrx", 32000, 2048, 3584, 24, 16, 1, 128, 2048, 1e-5, 1e4, false},
      {"doge", 32768, 1024, 2048, 32, 8, 8, 129, 2048, 1e-6, 1e4, false},
      {"jetmoe", 32000, 2048, 5632, 12, 32, 16, 128, 4096, 1e-6, 1e4, true},
      {"mimo_v2_flash", 152576, 4096, 16384, 48, 64, 8, 192, 131072, 1e-5, 5e6, false},
      {"olmo_hybrid", 100352, 3840, 11008, 32, 30, 30, 128, 65536, 1e-6, 1e4, false},
      {"afmoe", 200192, 2048, 6144, 32, 16, 16, 128, 16384, 1e-5, 1e4, false},
      {"bitnet", 128256, 2560, 6912, 30, 20, 5, 128, 2048, 1e-5, 5e5, false},
      {"cohere2_moe", 256000, 8192, 22528, 40, 64, 64, 128, 8192, 1e-5, 1e4, true},
      {"llama4_text", 202048, 5120, 16384, 48, 40, 8, 128, 131072, 1e-5, 5e5, false},
      {"phimoe", 32064, 4096, 0, 32, 32, 8, 128, 131072, 1e-5, 1e6, false},
      {"ernie4_5_moe", 103424, 2560, 12288, 28, 20, 4, 128, 131072, 1e-5, 5e5, true},
      {"exaone_moe", 102400, 4096, 16384, 32, 32, 32, 128, 2048, 1e-5, 1e4, false},
      {"flex_olmo", 100352, 4096, 11008, 32, 32, 32, 128, 4096, 1e-6, 5e5, false},
      {"granitemoeshared", 32000, 4096, 0, 32, 32, 32, 128, 2048, 1e-6, 1e4, false},
      {"minimax_m2", 200064, 3072, 0, 62, 48, 8, 128, 196608, 1e-6, 5e6, false},
      {"nanochat", 50304, 768, 8192, 12, 6, 6, 128, 2048, 1e-6, 1e4, false},
      {"recurrent_gemma", 256000, 2560, 3840, 26, 10, 10, 256, 8192, 1e-6, 1e4, true},
      {"vaultgemma", 256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 1e4, true},
      {"cwm", 128256, 6144, 21504, 64, 48, 8, 128, 131072, 1e-5, 1e6, false},
      {"helium", 48000, 2560, 7040, 24, 20, 20, 128, 4096, 1e-8, 1e5, false},
      {"qwen2_vl_text", 152064, 8192, 29568, 80, 64, 8, 128, 32768, 1e-5, 1e6, false},
      {"qwen2_5_vl_text", 152064, 8192, 29568, 80, 64, 8, 128, 32768, 1e-5, 1e6, false},
      {"qwen3_vl_text", 151936, 4096, 22016, 32, 32, 32, 128, 128000, 1e-6, 5e5, false},
      {"qwen3_vl_moe_text", 151936, 2048, 5632, 24, 16, 16, 128, 128000, 1e-6, 5e5, false},
  };
  for (const Defaults& row : rows) {
    SCOPED_TRACE(row.type);
    const ModelConfig c = parse(type(row.type));
    EXPECT_EQ(c.vocab_size, row.vocab);
    EXPECT_EQ(c.hidden_size, row.hidden);
    EXPECT_EQ(c.intermediate_size, row.intermediate);
    EXPECT_EQ(c.num_layers, row.layers);
    EXPECT_EQ(c.num_heads, row.heads);
    EXPECT_EQ(c.num_kv_heads, row.kv_heads);
    EXPECT_EQ(c.head_dim, row.head_dim);
    EXPECT_EQ(c.max_positions, row.positions);
    EXPECT_EQ(c.rms_norm_eps, row.eps);
    EXPECT_EQ(c.rope.theta, row.theta);
    EXPECT_EQ(c.tie_word_embeddings, row.tied);
  }
}

TEST(ReferenceDefaults, ExpertsOfMixtralHaveTheSizeOfAnMlp) {
  const ModelConfig c = parse(type("mixtral"));
  EXPECT_EQ(c.moe.experts, 8);
  EXPECT_EQ(c.moe.per_token, 2);
  EXPECT_EQ(c.moe.expert_size, 14336);
  EXPECT_TRUE(c.moe.norm_top_scores);
  EXPECT_EQ(parse(type("olmoe", {{"num_experts", 9}})).moe.experts, 9);
  EXPECT_EQ(parse(type("olmoe")).scalars.qkv_clip, std::nullopt);
  EXPECT_EQ(parse(type("olmoe", {{"clip_qkv", 8.0}})).scalars.qkv_clip, 8.0);
  EXPECT_EQ(refusal(type("olmoe", {{"clip_qkv", -8.0}})).substr(0, 26),
            "3 config.json: 'clip_qkv' ");
}

// The reference does not read norm_topk_prob here.
TEST(ReferenceDefaults, ChosenScoresOfQwen3VlMoeSumToOne) {
  const ModelConfig c = parse(type("qwen3_vl_moe_text", {{"norm_topk_prob", false}}));
  EXPECT_EQ(c.moe.experts, 60);
  EXPECT_EQ(c.moe.per_token, 4);
  EXPECT_EQ(c.moe.expert_size, 1408);
  EXPECT_TRUE(c.moe.norm_top_scores);
}

std::vector<bool> sliding(const json& config) {
  std::vector<bool> out;
  for (const LayerType layer : parse(config).layer_types) {
    out.push_back(layer == LayerType::kSlidingAttention);
  }
  return out;
}

TEST(ReferenceDefaults, EachTypeHasItsOwnPatternOfWindows) {
  const json five = {{"num_hidden_layers", 5}};
  EXPECT_EQ(sliding(type("olmo3", five)), (std::vector<bool>{true, true, true, false, true}));
  EXPECT_EQ(sliding(type("cwm", five)), (std::vector<bool>{false, true, true, true, false}));
  EXPECT_EQ(sliding(type("ministral", five)), std::vector<bool>(5, true));
  json moe = type("qwen2_moe", {{"num_hidden_layers", 5}, {"max_window_layers", 3}});
  EXPECT_EQ(sliding(moe), std::vector<bool>(5, false));
  moe["use_sliding_window"] = true;
  EXPECT_EQ(sliding(moe), (std::vector<bool>{true, false, true, false, false}));
}

// Layers with full attention of EXAONE 4 have no RoPE where the config states a window.
TEST(ReferenceDefaults, AWindowTakesTheRopeFromOtherLayersOfExaoneFour) {
  json config = type("exaone4", {{"num_hidden_layers", 5}});
  EXPECT_EQ(sliding(config), (std::vector<bool>{true, true, true, false, true}));
  EXPECT_EQ(parse(config).rope_layers, sliding(config));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "full_attention", "full_attention"};
  config["sliding_window_pattern"] = "LLLG";
  EXPECT_EQ(parse(config).rope_layers, (std::vector<bool>{true, false, false, false, false}));
  config["layer_types"] = json(5, "full_attention");
  EXPECT_FALSE(parse(config).has_rope());
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parse(config).rope_layers, std::vector<bool>(5, true));
}

// AutoConfig treats a mistral that lists its layers as a ministral.
TEST(ReferenceDefaults, AMistralMayListItsLayers) {
  const json list = {"sliding_attention", "full_attention"};
  const json more = {{"num_hidden_layers", 2}, {"layer_types", list}};
  EXPECT_EQ(sliding(type("mistral", more)), (std::vector<bool>{true, false}));
}

TEST(ReferenceDefaults, AnAlphaOfHunyuanChangesTheBaseOfDynamicRope) {
  const auto theta = [](const json& alpha) {
    const json rope = {{"type", "dynamic"}, {"factor", 1.0}, {"alpha", alpha}};
    return parse(type("hunyuan_v1_dense", {{"rope_scaling", rope}})).rope.theta;
  };
  EXPECT_DOUBLE_EQ(theta(1000.0), 1e4 * std::pow(1000.0, 128.0 / 126.0));
  EXPECT_DOUBLE_EQ(theta(nullptr), 1e4);
  EXPECT_DOUBLE_EQ(theta(0), 1e4);
}

TEST(ReferenceDefaults, QueriesOfMinistralThreeGrow) {
  for (const json& config :
       {type("ministral3"), type("ministral3", {{"rope_parameters", nullptr}})}) {
    const RopeConfig rope = parse(config).rope;
    EXPECT_EQ(rope.type, RopeConfig::Type::kYarn);
    EXPECT_EQ(rope.original_max_positions, 16384);
    EXPECT_EQ(rope.query_growth, 0.1);
  }
  json rope = {{"rope_type", "default"}, {"llama_4_scaling_beta", 0.5}};
  EXPECT_EQ(refusal(type("ministral3", {{"rope_parameters", rope}})),
            "3 config.json: 'rope_parameters.original_max_position_embeddings' is missing");
  rope = {{"rope_type", "default"}, {"original_max_position_embeddings", 8}};
  EXPECT_EQ(refusal(type("ministral3", {{"rope_parameters", rope}})),
            "3 config.json: 'rope_parameters.llama_4_scaling_beta' is missing");
}

TEST(ReferenceDefaults, ATextPartNamesWhichDecoderMistralThreeHas) {
  const auto text_type = [](const json& text) {
    return parse({{"model_type", "mistral3"}, {"text_config", text}}).text_type;
  };
  EXPECT_EQ(text_type({{"model_type", "mistral"}}), "mistral");
  EXPECT_EQ(text_type({{"model_type", "ministral3"}}), "ministral3");
  EXPECT_EQ(text_type(json::object()), "mistral");
  const json qwen = {{"model_type", "mistral3"}, {"text_config", {{"model_type", "qwen2"}}}};
  EXPECT_EQ(
      refusal(qwen),
      "4 config.json: 'text_config.model_type' is 'qwen2': the text part of mistral3 is mistral");
}

TEST(ReferenceDefaults, AHeadThatTheConfigDoesNotSettleIsTiedUnlessItIsStored) {
  json config = {{"model_type", "mistral3"}, {"text_config", json::object()}};
  EXPECT_TRUE(parse(config).tie_word_embeddings && parse(config).tie_unless_stored);
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(config).tie_word_embeddings && !parse(config).tie_unless_stored);
  config["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(config).tie_word_embeddings || parse(config).tie_unless_stored);
}

// The configs are those of the released models.
TEST(ReferenceDefaults, AConfigOfQwenVlMayBeFlat) {
  const json rope = {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
  const json more = {{"hidden_size", 2048},         {"num_attention_heads", 16},
                     {"rope_scaling", rope},        {"rope_theta", 5000.0},
                     {"tie_word_embeddings", true}, {"vision_config", json::object()}};
  for (const std::string name : {"qwen2_vl", "qwen2_5_vl"}) {
    const ModelConfig c = parse(type(name, more));
    EXPECT_EQ(c.text_type, name + "_text");
    EXPECT_EQ(c.hidden_size, 2048);
    EXPECT_EQ(c.rope, (RopeConfig{.theta = 5000.0}));
    EXPECT_TRUE(c.tie_word_embeddings);
  }
  EXPECT_EQ(refusal(type("qwen3_vl", more)), "3 config.json: 'text_config' is missing");
  EXPECT_EQ(refusal(type("llama", {{"rope_scaling", rope}})),
            "4 config.json: 'rope_scaling.type' is 'mrope'; default, linear, dynamic, yarn, llama3 "
            "and longrope are supported");
}

TEST(ReferenceDefaults, GraniteFourMayBeDense) {
  const json dense = {{"num_local_experts", 0},
                      {"num_hidden_layers", 2},
                      {"position_embedding_type", "rope"},
                      {"layer_types", {"attention", "attention"}}};
  const auto with = [&](const std::string& key, const json& value) {
    json config = type("granitemoehybrid", dense);
    config[key] = value;
    return parse(config);
  };
  const ModelConfig c = parse(type("granitemoehybrid", dense));
  EXPECT_EQ(c.intermediate_size, 1024);
  EXPECT_EQ(c.layer_types, std::vector<LayerType>(2, LayerType::kFullAttention));
  EXPECT_TRUE(c.has_rope());
  for (const json& none : {json(nullptr), json("nope")}) {
    json config = type("granitemoehybrid", dense);
    config["position_embedding_type"] = none;
    EXPECT_FALSE(parse(config).has_rope());
  }
  EXPECT_EQ(with("num_local_experts", 4).moe.experts, 4);
  EXPECT_EQ(with("layer_types", nullptr).layer_types, std::vector<LayerType>(2, LayerType::kMamba));
  EXPECT_EQ(with("layer_types", {"attention", "mamba"}).layer_types[1], LayerType::kMamba);
}

// -- sizes that a config states under a family's own names, or that follow from other sizes

ModelConfig parse_text(const std::string& text) {
  const auto config = parse_model_config(text, "", "config.json");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig{};
}

constexpr const char* kLfm2 =
    R"({"model_type": "lfm2", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64)";

TEST(ModelConfig, Lfm2SizesAreDerived) {
  // The first releases used these names. The MLP has two thirds of 100, times 1.5, rounded up to a
  // multiple of 8.
  const ModelConfig c = parse_text(kLfm2 + std::string(R"(, "block_ff_dim": 100,
      "block_ffn_dim_multiplier": 1.5, "block_multiple_of": 8, "norm_eps": 1e-4,
      "full_attn_idxs": [1], "tie_embedding": false, "conv_L_cache": 4})"));
  EXPECT_EQ(c.intermediate_size, 104);
  EXPECT_EQ(c.rms_norm_eps, 1e-4);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.number("conv_kernel"), 4);
  EXPECT_EQ(c.number("conv_bias"), 0);
  EXPECT_EQ(c.layer_types, (std::vector<LayerType>{LayerType::kShortConv, LayerType::kFullAttention,
                                                   LayerType::kShortConv}));
  const ModelConfig plain = parse_text(
      kLfm2 + std::string(R"(, "intermediate_size": 100, "block_auto_adjust_ff_dim": false})"));
  EXPECT_EQ(plain.intermediate_size, 100);
  EXPECT_EQ(plain.rope.theta, 1e6);
  EXPECT_TRUE(plain.tie_word_embeddings);
}

TEST(ModelConfig, CodegenHasNamesOfItsOwn) {
  const std::string text = R"({"model_type": "codegen", "vocab_size": 10, "n_embd": 64,
      "n_layer": 1, "n_head": 8, "n_inner": null, "rotary_dim": 4)";
  const ModelConfig first = parse_text(text + "}");
  EXPECT_EQ(first.hidden_size, 64);
  EXPECT_EQ(first.intermediate_size, 256);
  EXPECT_EQ(first.max_positions, 2048);
  EXPECT_EQ(first.rotary_dim(), 4);
  EXPECT_EQ(first.activation, Activation::kGeluTanh);
  EXPECT_EQ(first.number("qkv_blocks"), 4);
  EXPECT_EQ(parse_text(text + R"(, "head_dim": 8})").number("qkv_blocks"), 8);
}

TEST(ModelConfig, SizesOfOneFamilyAreChecked) {
  const std::string codegen = R"({"model_type": "codegen", "vocab_size": 10, "n_embd": 64,
      "n_layer": 1)";
  const std::pair<std::string, const char*> cases[] = {
      {codegen + R"(, "n_head": 8, "rotary_dim": 10})", "'rotary_dim' is 10"},
      {codegen + R"(, "n_head": 8, "rotary_dim": 3})", "'rotary_dim' is 3"},
      {codegen + R"(, "n_head": 2, "rotary_dim": 4})", "'n_head' is 2"},
      {codegen + R"(, "n_head": 8, "rotary_dim": 4, "head_dim": 4})", "'head_dim' is 4"},
      {codegen + R"(, "n_head": 4096, "rotary_dim": 4, "head_dim": 65536})", "'n_head' is 4096"},
      {kLfm2 + std::string(R"(, "intermediate_size": 16000000, "block_ffn_dim_multiplier": 900})"),
       "'intermediate_size' becomes"},
      {kLfm2 + std::string(R"(, "intermediate_size": 9, "block_multiple_of": 0})"),
       "'block_multiple_of' is 0"},
  };
  for (const auto& [text, message] : cases) {
    const Result<ModelConfig> c = parse_model_config(text, "", "config.json");
    ASSERT_FALSE(c.has_value()) << text;
    EXPECT_EQ(c.error().code, ErrorCode::kBadInput);
    EXPECT_NE(c.error().message.find(message), std::string::npos) << c.error().message;
  }
}

TEST(ReferenceDefaults, Llama4SaysWhichLayersHaveRopeChunksAndExperts) {
  const auto of = [](const json& more) {
    json config = type("llama4_text", {{"num_hidden_layers", 4}});
    config.update(more);
    return parse(config);
  };
  const ModelConfig usual = of({{"no_rope_layers", json::array()}});
  EXPECT_EQ(usual.rope_layers, std::vector<bool>({true, true, true, false}));
  EXPECT_EQ(usual.layer_types[2], LayerType::kSlidingAttention);
  EXPECT_EQ(usual.layer_types[3], LayerType::kFullAttention);
  EXPECT_EQ(usual.sliding_window, 8192);
  EXPECT_EQ(usual.moe.expert_size, 8192);
  EXPECT_EQ(usual.moe.shared_size, 8192);
  EXPECT_EQ(of({{"interleave_moe_layer_step", 2}}).moe.layers,
            std::vector<bool>({false, true, false, true}));
  EXPECT_EQ(of({{"moe_layers", {0, 7}}, {"interleave_moe_layer_step", 2}}).moe.layers,
            std::vector<bool>({true, false, false, false}));
  EXPECT_EQ(of({{"moe_layers", json::array()}}).moe.experts, 0);
  EXPECT_EQ(of({{"attn_temperature_tuning", false}}).scalars.query_growth, 0.0);
  EXPECT_EQ(refusal(type("llama4_text", {{"attention_chunk_size", nullptr}})),
            "3 config.json: 'attention_chunk_size' is null");
  EXPECT_EQ(refusal(type("llama4_text", {{"is_causal", false}})),
            "4 config.json: 'is_causal' is not true");
  EXPECT_EQ(refusal(type("llama4_text",
                         {{"num_hidden_layers", 1}, {"layer_types", {"sliding_attention"}}})),
            "4 config.json: 'layer_types' has the unknown type 'sliding_attention'");
}

// The head is tied by the text part alone.
TEST(ReferenceDefaults, Llama4IsTiedByItsTextPart) {
  const auto ties = [](bool outer, bool text) {
    const json inside = {{"model_type", "llama4_text"}, {"tie_word_embeddings", text}};
    return parse(type("llama4", {{"text_config", inside}, {"tie_word_embeddings", outer}}))
        .tie_word_embeddings;
  };
  EXPECT_TRUE(ties(false, true));
  EXPECT_FALSE(ties(true, false));
}

TEST(ReferenceDefaults, RecurrentGemmaRepeatsItsBlockTypes) {
  const ModelConfig c = parse(type("recurrent_gemma", {{"num_hidden_layers", 4}}));
  EXPECT_EQ(c.layer_types,
            std::vector<LayerType>({LayerType::kMamba, LayerType::kMamba,
                                    LayerType::kSlidingAttention, LayerType::kMamba}));
  EXPECT_EQ(c.number("lru_width"), 2560);
  EXPECT_EQ(c.scalars.embedding, 50.5);  // sqrt(2560) in bf16
  EXPECT_EQ(refusal(type("recurrent_gemma", {{"block_types", {"recurrent", "local"}}})),
            "4 config.json: 'block_types' has another name than recurrent, attention");
  EXPECT_EQ(refusal(type("recurrent_gemma", {{"block_types", json::array()}})),
            "3 config.json: 'block_types' is not a list of names");
  EXPECT_EQ(refusal(type("recurrent_gemma", {{"lru_width", 25}})),
            "3 config.json: 'lru_width' is not a multiple of the number of heads");
  EXPECT_EQ(
      refusal(type("recurrent_gemma", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}})),
      "4 config.json: 'rope_scaling.type' is not default");
}

// Rows for distances from -9 to 9, by make_log_bucket_position() of the reference.
TEST(ReferenceDefaults, DebertaNumbersDistancesAsTheReferenceDoes) {
  const json sizes = {{"hidden_size", 24},           {"num_attention_heads", 3},
                      {"relative_attention", true},  {"position_buckets", 8},
                      {"pos_att_type", "P2C | c2p"}, {"max_position_embeddings", 64}};
  const ModelConfig c = parse(type("deberta-v2", sizes));
  EXPECT_NEAR(*c.scalars.attention, 1 / std::sqrt(24.0), 1e-12);
  const std::vector<int64_t> rows = {3, 3,  3,  3,  3,  4,  5,  6,  7, 8,
                                     9, 10, 11, 12, 13, 13, 13, 13, 13};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(relative_row(c, static_cast<int64_t>(i) - 9), rows[i]) << i;
  }
  const auto with = [&](const char* key, const json& value) {
    json config = sizes;
    config[key] = value;
    return refusal(type("deberta-v2", config));
  };
  EXPECT_EQ(with("conv_kernel_size", 3),
            "4 config.json: 'conv_kernel_size' is positive: convolutions are not supported");
  EXPECT_EQ(with("embedding_size", 16),
            "4 config.json: 'embedding_size' is 16, not 24: not supported");
  EXPECT_EQ(with("attention_head_size", 12),
            "4 config.json: 'attention_head_size' is 12, not 8: not supported");
  EXPECT_EQ(with("position_buckets", 256),
            "4 config.json: 'position_buckets' is 256 for distances up to 64: not supported");
  EXPECT_EQ(with("pos_att_type", 3),
            "3 config.json: 'pos_att_type' is neither a text nor a list of names");
}

}  // namespace
}  // namespace ferry::converters::model_config_defaults_test
