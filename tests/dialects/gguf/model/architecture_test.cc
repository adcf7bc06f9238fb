// Models that share the name of an architecture, and the keys of an architecture about layers and
// experts.

#include <gtest/gtest.h>

#include "converters/config/model_config.h"
#include "tests/dialects/gguf_memory.h"

namespace ferry::converters::architecture_test {
namespace {

using enum LayerType;

ModelConfig config_of(const Json& keys, std::unique_ptr<GgufMemory> source = gguf_memory()) {
  const auto adopted = adopt(keys, std::move(source));
  EXPECT_TRUE(adopted) << adopted.error().message;
  return adopted ? parse_model_config(adopted->config, "", "c").value() : ModelConfig();
}

std::string refusal(const Json& keys) {
  const auto adopted = adopt(keys);
  return adopted ? "" : adopted.error().message;
}

Json layered_keys(const std::string& architecture, int64_t layers) {
  Json keys = keys_of(architecture);
  keys[architecture + ".block_count"] = layers;
  return keys;
}

Json deepseek_keys() {
  Json keys = layered_keys("deepseek2", 2);
  const std::pair<const char*, Json> kKeys[] = {
      {"attention.head_count_kv", 1},    {"attention.key_length", 7},
      {"attention.value_length", 5},     {"attention.key_length_mla", 6},
      {"attention.value_length_mla", 3}, {"attention.kv_lora_rank", 5},
      {"rope.dimension_count", 2},       {"expert_count", 4},
      {"expert_used_count", 2},          {"expert_feed_forward_length", 4},
      {"expert_shared_count", 1},        {"expert_group_count", 2},
      {"expert_group_used_count", 1},    {"leading_dense_block_count", 1},
      {"expert_weights_scale", 2.5}};
  for (const auto& [key, value] : kKeys) keys[std::string("deepseek2.") + key] = value;
  return keys;
}

TEST(GgufFamilies, TheKeysTellWhichModelItIs) {
  EXPECT_EQ(config_of(llama_keys()).text_type, "llama");
  Json experts = llama_keys();
  experts["llama.expert_count"] = 4;
  experts["llama.expert_used_count"] = 2;
  const ModelConfig mixtral = config_of(experts);
  EXPECT_EQ(mixtral.text_type, "mixtral");
  EXPECT_EQ(mixtral.moe.experts, 4);
  EXPECT_EQ(mixtral.moe.expert_size, 6);

  Json olmo = layered_keys("olmo2", 4);
  EXPECT_EQ(config_of(olmo).text_type, "olmo2");
  olmo["olmo2.attention.sliding_window"] = 16;
  const ModelConfig olmo3 = config_of(olmo);
  EXPECT_EQ(olmo3.text_type, "olmo3");
  EXPECT_EQ(olmo3.layer_types,
            (std::vector{kSlidingAttention, kSlidingAttention, kSlidingAttention, kFullAttention}));
  EXPECT_EQ(olmo3.sliding_window, 16);

  Json mistral = keys_of("mistral3");
  EXPECT_EQ(config_of(mistral).text_type, "mistral");
  mistral["mistral3.attention.temperature_scale"] = 0.1;
  EXPECT_EQ(refusal(mistral),
            "m.gguf: 'mistral3.attention.temperature_scale' is not supported without yarn");
  mistral.erase("mistral3.attention.temperature_scale");
  const char* own = R"({"model_type": "ministral3", "rope_parameters": {"rope_type": "default",
      "rope_theta": 500000.0, "original_max_position_embeddings": 16,
      "llama_4_scaling_beta": 0.0}})";
  const auto typed = adopt(mistral, gguf_memory(), own);
  ASSERT_TRUE(typed) << typed.error().message;
  EXPECT_NE(typed->config.find("\"model_type\": \"ministral3\""), std::string::npos);
  mistral["mistral3.rope.scaling.type"] = "yarn";
  mistral["mistral3.rope.scaling.factor"] = 4.0;
  mistral["mistral3.rope.scaling.original_context_length"] = 32;
  EXPECT_EQ(config_of(mistral).text_type, "mistral");
  mistral["mistral3.rope.scaling.yarn_log_multiplier"] = 1.0;
  EXPECT_EQ(config_of(mistral).text_type, "ministral3");
}

// A text token has one position in all sections of multimodal RoPE.
TEST(GgufFamilies, TextPartsOfVisionModels) {
  const std::pair<const char*, const char*> kTypes[] = {{"qwen2vl", "qwen2_5_vl_text"},
                                                        {"qwen3vl", "qwen3_vl_text"}};
  for (const auto& [architecture, type] : kTypes) {
    Json keys = keys_of(architecture);
    keys[std::string(architecture) + ".rope.dimension_sections"] = {1, 1, 0, 0};
    keys[std::string(architecture) + ".n_deepstack_layers"] = 3;
    const ModelConfig config = config_of(keys);
    EXPECT_EQ(config.text_type, type);
    EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
  }
}

TEST(GgufFamilies, Gemma4CapsLogitsUnlessTheFileSaysZero) {
  Json keys = keys_of("gemma4");
  keys["gemma4.attention.sliding_window"] = 8;
  keys["gemma4.attention.sliding_window_pattern"] = {false};
  keys["gemma4.embedding_length_per_layer_input"] = 0;
  for (const char* name : {"key_length", "key_length_swa", "value_length", "value_length_swa"}) {
    keys[std::string("gemma4.attention.") + name] = 4;
  }
  const auto cap = [&] {
    auto source = gguf_memory();
    source->add("rope_freqs.weight", {2}, {1, 1});
    return config_of(keys, std::move(source)).scalars.logit_softcap;
  };
  EXPECT_EQ(cap(), 30.0);
  keys["gemma4.final_logit_softcapping"] = 20.0;
  EXPECT_EQ(cap(), 20.0);
  keys["gemma4.final_logit_softcapping"] = 0.0;
  EXPECT_EQ(cap(), std::nullopt);
}

TEST(GgufFamilies, GraniteWithoutRope) {
  Json keys = keys_of("granite");
  for (const char* key : {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"}) {
    keys[std::string("granite.") + key] = 2.0;
  }
  EXPECT_EQ(config_of(keys).text_type, "granite");
  keys["granite.rope.scaling.finetuned"] = false;
  const ModelConfig config = config_of(keys);
  EXPECT_EQ(config.text_type, "granitemoehybrid");
  EXPECT_FALSE(config.has_rope());
  EXPECT_EQ(config.layer_types, std::vector{kFullAttention});
}

TEST(GgufFamilies, LayersWithoutKvHeadsAreOfAnotherType) {
  Json keys = layered_keys("lfm2", 3);
  keys["lfm2.shortconv.l_cache"] = 3;
  keys["lfm2.attention.head_count_kv"] = {0, 1, 0};
  const ModelConfig config = config_of(keys);
  EXPECT_EQ(config.layer_types, (std::vector{kShortConv, kFullAttention, kShortConv}));
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.intermediate_size, 6);
  keys["lfm2.attention.head_count_kv"] = {0, 1};
  EXPECT_EQ(refusal(keys), "m.gguf: 'lfm2.attention.head_count_kv' has too few elements");
  keys["lfm2.attention.head_count_kv"] = {2, 1, 0};
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'lfm2.attention.head_count_kv' differs between layers: not supported in this "
            "architecture");
}

TEST(GgufFamilies, DeepSeekTwoAndThree) {
  Json keys = deepseek_keys();
  const ModelConfig second = config_of(keys);
  EXPECT_EQ(second.text_type, "deepseek_v2");
  EXPECT_EQ(second.number("qk_nope_head_dim"), 4);
  EXPECT_EQ(second.number("v_head_dim"), 3);
  EXPECT_EQ(second.number("q_lora_rank"), 0);
  EXPECT_EQ(second.moe.group_best, 1);
  EXPECT_EQ(second.moe.layers, (std::vector{false, true}));
  EXPECT_EQ(second.moe.scale, 2.5);
  keys["deepseek2.expert_weights_norm"] = true;
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'deepseek2.expert_weights_norm' is true: not supported where "
            "scores are a softmax");
  keys["deepseek2.expert_gating_func"] = 2;
  const ModelConfig third = config_of(keys);
  EXPECT_EQ(third.text_type, "deepseek_v3");
  EXPECT_EQ(third.moe.scores, MoeConfig::Scores::kSigmoid);
  EXPECT_EQ(third.moe.group_best, 2);
  EXPECT_TRUE(third.moe.norm_top_scores);
  keys["deepseek2.expert_gating_func"] = 3;  // a softmax over the chosen experts
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'deepseek2.expert_gating_func' is 3: not supported in this "
            "architecture");
  keys["deepseek2.expert_weights_norm"] = false;
  // Configs of transformers 5 do not state the gating function, and files made of them do not
  // either.
  keys.erase("deepseek2.expert_gating_func");
  auto source = gguf_memory();
  source->add("blk.1.exp_probs_b.bias", {4});
  EXPECT_EQ(config_of(keys, std::move(source)).text_type, "deepseek_v3");
}

// Older files have no keys for the dimensions of split heads (key_length_mla).
TEST(GgufFamilies, LatentAttentionOfOlderFiles) {
  Json keys = deepseek_keys();
  keys.erase("deepseek2.attention.key_length_mla");
  keys.erase("deepseek2.attention.value_length_mla");
  keys["deepseek2.attention.head_count_kv"] = 2;
  const ModelConfig config = config_of(keys);
  EXPECT_EQ(config.number("qk_nope_head_dim"), 5);
  EXPECT_EQ(config.number("v_head_dim"), 5);
  keys["deepseek2.attention.key_length"] = 2;
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'deepseek2.attention.key_length' leaves no dimension of a head "
            "without RoPE");
}

// EXAONE 4 has one list of windows and one RoPE.
TEST(GgufFamilies, WindowsOfExaone4) {
  Json keys = layered_keys("exaone4", 3);
  EXPECT_EQ(config_of(keys).layer_types, std::vector(3, kFullAttention));
  keys["exaone4.attention.sliding_window"] = 8;
  keys["exaone4.attention.sliding_window_pattern"] = {true, false, true};
  const ModelConfig config = config_of(keys);
  EXPECT_EQ(config.layer_types,
            (std::vector{kSlidingAttention, kFullAttention, kSlidingAttention}));
  EXPECT_EQ(config.rope_layers, (std::vector{true, false, true}));
  keys["exaone4.rope.freq_base_swa"] = 7.0;
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'exaone4.rope.freq_base_swa' differs from exaone4.rope.freq_base");
}

TEST(GgufFamilies, ExpertsThatNoModelHas) {
  Json keys = keys_of("qwen2");
  keys["qwen2.expert_count"] = 8;
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'qwen2.expert_count' is not 0: not supported in this architecture");
}

TEST(GgufFamilies, GraniteWithExpertsAlone) {
  Json keys = keys_of("granitemoe");
  for (const char* key : {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"}) {
    keys[std::string("granitemoe.") + key] = 2.0;
  }
  keys["granitemoe.expert_count"] = 2;
  keys["granitemoe.expert_used_count"] = 1;
  const ModelConfig alone = config_of(keys);
  EXPECT_EQ(alone.text_type, "granitemoe");
  EXPECT_EQ(alone.moe.shared_size, 0);
  EXPECT_EQ(alone.moe.scores, MoeConfig::Scores::kTopSoftmax);
  keys["granitemoe.rope.scaling.finetuned"] = false;
  EXPECT_EQ(refusal(keys),
            "m.gguf: 'granitemoe.rope.scaling.finetuned' is false: not supported where experts "
            "have no shared one");
  keys.erase("granitemoe.rope.scaling.finetuned");
  auto source = gguf_memory();
  source->add("blk.0.ffn_up_shexp.weight", {4, 8});
  keys["granitemoe.expert_shared_feed_forward_length"] = 4;
  EXPECT_EQ(config_of(keys, std::move(source)).text_type, "granitemoehybrid");
}

}  // namespace
}  // namespace ferry::converters::architecture_test
