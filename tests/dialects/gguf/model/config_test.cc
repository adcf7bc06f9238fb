// Configs that are made of metadata and of the user's config.

#include <gtest/gtest.h>

#include <cmath>

#include "converters/config/model_config.h"
#include "tests/dialects/gguf_memory.h"

namespace ferry::converters::config_test {
namespace {

TEST(GgufConfig, IsThatOfTheModel) {
  auto source = gguf_memory();
  source->add("output.weight", {10, 8});
  const auto adopted = adopt(llama_keys(), std::move(source)).value();
  const ModelConfig config = parse_model_config(adopted.config, adopted.generation, "c").value();
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocab_size, 10);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.intermediate_size, 6);
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.num_heads, 2);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.max_positions, 128);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(adopted.tensors.names.at("model.layers.0.self_attn.q_proj.weight"),
            "blk.0.attn_q.weight");
}

TEST(GgufConfig, OfAHybrid) {
  Json keys = hybrid_keys("qwen35");
  keys["qwen35.attention.recurrent_layers"] = {false, true, true, false};
  const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
  EXPECT_EQ(config.linear.key_heads, 2);
  EXPECT_EQ(config.linear.value_heads, 4);
  EXPECT_EQ(config.linear.key_dim, 2);
  EXPECT_EQ(config.linear.value_dim, 3);
  EXPECT_EQ(config.linear.conv_kernel, 4);
  EXPECT_EQ(config.rotary_dim(), 2);
  EXPECT_EQ(config.layer_types,
            (std::vector{LayerType::kFullAttention, LayerType::kLinearAttention,
                         LayerType::kLinearAttention, LayerType::kFullAttention}));
  EXPECT_TRUE(config.tie_word_embeddings);
}

// Files of models whose layers are all of one kind have sizes of 0 for the other kind.
TEST(GgufConfig, OfAHybridWithoutLinearAttention) {
  Json keys = hybrid_keys("qwen35");
  keys["qwen35.attention.recurrent_layers"] = {false, false, false, false};
  for (const char* size :
       {"conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"}) {
    keys[std::string("qwen35.ssm.") + size] = 0;
  }
  const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
  EXPECT_EQ(config.layer_types, std::vector(4, LayerType::kFullAttention));
}

TEST(GgufConfig, OfAHybridWithoutAttention) {
  Json keys = keys_of("lfm2");
  keys["lfm2.attention.head_count_kv"] = Json::array({0});
  keys["lfm2.shortconv.l_cache"] = 3;
  const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
  EXPECT_EQ(config.layer_types, std::vector(1, LayerType::kShortConv));
}

// For scaled RoPE the reference reads the factor beside the object, or takes the default of its
// class.
TEST(GgufConfig, TheTurnedPartOfAHeadStaysWhereRopeIsScaled) {
  Json keys = hybrid_keys("qwen35");
  keys["qwen35.rope.scaling.type"] = "linear";
  keys["qwen35.rope.scaling.factor"] = 2.0;
  const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kLinear);
  EXPECT_EQ(config.rotary_dim(), 2);
}

TEST(GgufConfig, RefusesMetadataThatLacksOrContradicts) {
  const struct {
    const char* key;
    Json value;  // null: without the key
    ErrorCode code;
    const char* message;
  } kCases[] = {
      {"general.architecture", nullptr, ErrorCode::kBadInput,
       "m.gguf: 'general.architecture' is missing"},
      {"general.architecture", 7, ErrorCode::kBadInput,
       "m.gguf: 'general.architecture' is not a string"},
      {"general.architecture", "gpt\n2", ErrorCode::kUnsupported,
       "m.gguf: 'general.architecture' is 'gpt\\n2'; supported are afmoe, apertus, "
       "arcee, bert, bitnet, bloom, chatglm, cohere2, cohere2moe, command-r, dbrx, deepseek2, "
       "dots1, ernie4_5, ernie4_5-moe, eurobert, exaone-moe, exaone4, falcon, "
       "falcon-h1, gemma, gemma-embedding, gemma2, gemma3, gemma3n, gemma4, glm4, "
       "glm4moe, gpt-oss, gpt2, gptneox, granite, granitehybrid, granitemoe, hunyuan-"
       "dense, hunyuan-moe, jamba, jina-bert-v3, lfm2, lfm2moe, llama, llama4, mamba, "
       "mamba2, mimo2, minicpm3, minimax-m2, mistral3, modern-bert, mpt, nemotron, "
       "nemotron_h, nemotron_h_moe, nomic-bert, olmo, olmo2, olmoe, phi2, phi3, qwen2,"
       " qwen2moe, qwen2vl, qwen3, qwen35, qwen35moe, qwen3moe, qwen3next, qwen3vl, "
       "qwen3vlmoe, seed_oss, smollm3, stablelm, starcoder, starcoder2, t5"},
      {"general.type", "adapter", ErrorCode::kUnsupported,
       "m.gguf: 'general.type' is 'adapter': only models can be converted"},
      {"llama.context_length", nullptr, ErrorCode::kBadInput,
       "m.gguf: the metadata lack llama.context_length; config can state them"},
      {"llama.block_count", nullptr, ErrorCode::kBadInput,
       "m.gguf: the metadata lack llama.block_count; config can state them"},
      {"llama.block_count", "two", ErrorCode::kBadInput,
       "m.gguf: 'llama.block_count' is not an integer"},
      {"llama.block_count", 0, ErrorCode::kBadInput,
       "m.gguf: 'llama.block_count' is 0, not from 1 to 131072"},
      {"llama.block_count", 100000, ErrorCode::kBadInput,
       "m.gguf (metadata): 'num_hidden_layers' is 100000, not from 1 to 1024"},
      {"llama.nextn_predict_layers", 1, ErrorCode::kBadInput,
       "m.gguf: 'llama.nextn_predict_layers' leaves no layer of the model"},
      {"llama.embedding_length", -8, ErrorCode::kBadInput,
       "m.gguf: 'llama.embedding_length' is -8, not from 0 to 2147483647"},
      {"llama.attention.head_count", 3, ErrorCode::kBadInput,
       "m.gguf: 'llama.attention.head_count' does not divide the embedding length"},
      {"llama.attention.layer_norm_rms_epsilon", NAN, ErrorCode::kBadInput,
       "m.gguf: 'llama.attention.layer_norm_rms_epsilon' is nan, not from 1e-30 to "
       "1000000000000000"},
      {"llama.attention.value_length", 5, ErrorCode::kUnsupported,
       "m.gguf: 'llama.attention.value_length' differs from the length of keys"},
      {"llama.rope.dimension_count", 2, ErrorCode::kUnsupported,
       "m.gguf: 'llama.rope.dimension_count' turns a part of each head: not supported in this "
       "architecture"},
      {"llama.rope.dimension_count", 6, ErrorCode::kBadInput,
       "m.gguf: 'llama.rope.dimension_count' is above the size of a head"},
      {"llama.rope.scaling.type", "alibi", ErrorCode::kUnsupported,
       "m.gguf: 'llama.rope.scaling.type' is 'alibi': not supported"},
      {"llama.rope.scaling.type", "longrope", ErrorCode::kBadInput,
       "m.gguf: longrope needs the tensor 'rope_factors_short.weight'"},
      {"llama.rope.scaling.attn_factor", 1.25, ErrorCode::kUnsupported,
       "m.gguf: 'llama.rope.scaling.attn_factor' is 1.25: not supported without longrope"},
      {"llama.attention.causal", false, ErrorCode::kUnsupported,
       "m.gguf: 'llama.attention.causal' is false: not supported in this architecture"},
      {"llama.attention.causal", "no", ErrorCode::kUnsupported,
       "m.gguf: 'llama.attention.causal' is not a number"},
      {"llama.attention.scale", 0.5, ErrorCode::kUnsupported,
       "m.gguf: 'llama.attention.scale' is 0.5: not supported in this architecture"},
      {"llama.final_logit_softcapping", 30.0, ErrorCode::kUnsupported,
       "m.gguf: 'llama.final_logit_softcapping' is 30.0: not supported in this architecture"},
      {"llama.rope.scaling.type", "linear", ErrorCode::kBadInput,
       "m.gguf: 'llama.rope.scaling.factor' is missing"},
      {"llama.attention.head_count", Json::array({2, 3}), ErrorCode::kUnsupported,
       "m.gguf: 'llama.attention.head_count' differs between layers: not supported in this "
       "architecture"},
      {"llama.vocab_size", 0, ErrorCode::kBadInput,
       "m.gguf: 'llama.vocab_size' is 0, 'token_embd.weight' has 10 rows"},
      {"llama.attention.head_count", Json::array({0, 0}), ErrorCode::kBadInput,
       "m.gguf: 'llama.attention.head_count' is 0, not from 1 to 2147483647"},
  };
  for (const auto& c : kCases) {
    Json keys = llama_keys();
    keys.erase(c.key);
    if (!c.value.is_null()) keys[c.key] = c.value;
    const auto adopted = adopt(keys);
    ASSERT_FALSE(adopted) << c.message;
    EXPECT_EQ(adopted.error().message, c.message);
    EXPECT_EQ(adopted.error().code, c.code) << c.message;
  }
}

TEST(GgufConfig, TheUsersConfigAddsWhatIsMissing) {
  Json keys = llama_keys();
  keys.erase("llama.context_length");
  const std::string user =
      R"({"model_type": "mistral", "sliding_window": 16, "max_position_embeddings": 99})";
  const auto adopted = adopt(keys, gguf_memory(), user).value();
  EXPECT_EQ(adopted.config_name, "user.json");
  const ModelConfig config = parse_model_config(adopted.config, "", "c").value();
  EXPECT_EQ(config.model_type, "mistral");
  EXPECT_EQ(config.sliding_window, 16);
  EXPECT_EQ(config.max_positions, 99);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.rope.theta, 500000.0);
}

TEST(GgufConfig, TheUsersConfigMustNotContradict) {
  const struct {
    const char* user;
    const char* message;
  } kCases[] = {
      {"[1]", "user.json: not a JSON object"},
      {R"({"model_type": "qwen3"})",
       "user.json: 'model_type' is 'qwen3', but m.gguf has the architecture 'llama'"},
      {R"({"hidden_size": 16})",
       "user.json: 'hidden_size' is 16, but m.gguf has 8 (llama.embedding_length)"},
      {R"({"num_hidden_layers": 2})",
       "user.json: 'num_hidden_layers' is 2, but m.gguf has 1 (block_count)"},
      {R"({"vocab_size": 11})",
       "user.json: 'vocab_size' is 11, but m.gguf has 10 (rows of token_embd.weight)"},
      {R"({"rope_theta": 10000})",
       "user.json: 'rope_theta' is 10000, but m.gguf has 500000 (llama.rope.freq_base)"},
      {R"({"rms_norm_eps": 1e-6})",
       "user.json: 'rms_norm_eps' is 1e-06, but m.gguf has 1e-05 "
       "(llama.attention.layer_norm_rms_epsilon)"},
  };
  for (const auto& c : kCases) {
    const auto adopted = adopt(llama_keys(), gguf_memory(), c.user);
    ASSERT_FALSE(adopted) << c.user;
    EXPECT_EQ(adopted.error().message, c.message);
    EXPECT_EQ(adopted.error().code, ErrorCode::kBadInput);
  }
  // Equal numbers are no contradiction, also if the file has them rounded to f32.
  EXPECT_TRUE(
      adopt(llama_keys(), gguf_memory(), R"({"hidden_size": 8, "rms_norm_eps": 1.00000001e-5})"));
}

// These keys change models of other architectures. With these values they change nothing.
TEST(GgufConfig, NeutralValuesOfForeignKeysAreAccepted) {
  const std::pair<const char*, Json> kNeutral[] = {{"attention.causal", true},
                                                   {"attention.scale", 0.0},
                                                   {"logit_scale", 1.0},
                                                   {"final_logit_softcapping", 0.0},
                                                   {"attention.clamp_kqv", 0.0},
                                                   {"expert_gating_func", 1},
                                                   {"rope.scaling.attn_factor", 1},
                                                   {"rope.scaling.type", "none"},
                                                   {"rope.scaling.finetuned", false}};
  Json keys = llama_keys();
  for (const auto& [key, value] : kNeutral) keys[std::string("llama.") + key] = value;
  const auto adopted = adopt(keys);
  ASSERT_TRUE(adopted) << adopted.error().message;
  const ModelConfig config = parse_model_config(adopted->config, "", "c").value();
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
}

TEST(GgufConfig, OfGranite) {
  Json keys = keys_of("granite");
  const auto lacking = adopt(keys);
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().message,
            "m.gguf: the metadata lack granite.embedding_scale, granite.residual_scale, "
            "granite.attention.scale, granite.logit_scale; config can state them");
  keys["granite.embedding_scale"] = 12.0;
  keys["granite.residual_scale"] = 0.22;
  keys["granite.attention.scale"] = 0.0078125;
  keys["granite.logit_scale"] = 8.0;
  const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
  EXPECT_EQ(config.scalars.embedding, 12.0);
  EXPECT_EQ(config.scalars.residual, 0.22);
  EXPECT_EQ(config.scalars.attention, 0.0078125);
  EXPECT_EQ(config.scalars.logits, 1.0 / 8.0);
  const auto contradicted = adopt(keys, gguf_memory(), R"({"logits_scaling": 4})");
  ASSERT_FALSE(contradicted);
  EXPECT_EQ(contradicted.error().message,
            "user.json: 'logits_scaling' is 4, but m.gguf has 8 (granite.logit_scale)");
}

TEST(GgufConfig, OfGemma2) {
  Json keys = keys_of("gemma2");
  keys["gemma2.attention.sliding_window"] = 64;
  keys["gemma2.attn_logit_softcapping"] = 20.0;
  const auto config_of = [&] {
    return parse_model_config(adopt(keys).value().config, "", "c").value();
  };
  const ModelConfig config = config_of();
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.scalars.attention_softcap, 20.0);
  EXPECT_EQ(config.scalars.logit_softcap, 30.0);
  EXPECT_EQ(config.scalars.attention, 1 / std::sqrt(4.0));
  EXPECT_EQ(config.layer_types[0], LayerType::kSlidingAttention);
  keys["gemma2.final_logit_softcapping"] = 0.0;
  EXPECT_EQ(config_of().scalars.logit_softcap, std::nullopt);
  // The 27B model scales scores by hidden size / heads, whatever the size of its heads.
  keys["gemma2.block_count"] = 46;
  keys["gemma2.attention.key_length"] = 8;
  keys["gemma2.attention.value_length"] = 8;
  EXPECT_EQ(config_of().scalars.attention, 1 / std::sqrt(4.0));
}

TEST(GgufConfig, OfSmolLm3HasNoRopeInEveryFourthLayer) {
  Json keys = keys_of("smollm3");
  keys["smollm3.block_count"] = 4;
  const Json config = Json::parse(adopt(keys).value().config);
  EXPECT_EQ(config["no_rope_layer_interval"], 4);
}

}  // namespace
}  // namespace ferry::converters::config_test
