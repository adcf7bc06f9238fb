// Configs from metadata and from the user, and the RoPE scaling behind factors.

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "converters/gguf/rope_factors.h"
#include "converters/model_config.h"
#include "tests/converters/gguf_memory.h"

namespace ferry {
namespace {

// -- config
// --------------------------------------------------------------------------------------

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
  EXPECT_EQ(adopted.stored_names.at("model.layers.0.self_attn.q_proj.weight"),
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
       "m.gguf: 'general.architecture' is 'gpt\\n2'; supported are llama, qwen2, qwen2moe, qwen3, "
       "qwen3moe, qwen35, qwen3next, gemma3"},
      {"general.type", "adapter", ErrorCode::kUnsupported,
       "m.gguf: 'general.type' is 'adapter': only models can be converted"},
      {"llama.context_length", nullptr, ErrorCode::kBadInput,
       "m.gguf: the metadata lack llama.context_length; give --config FILE"},
      {"llama.block_count", nullptr, ErrorCode::kBadInput,
       "m.gguf: the metadata lack llama.block_count; give --config FILE"},
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
       "m.gguf: 'llama.rope.dimension_count' turns a part of each head: not supported"},
      {"llama.rope.dimension_count", 6, ErrorCode::kBadInput,
       "m.gguf: 'llama.rope.dimension_count' is above the size of a head"},
      {"llama.rope.scaling.type", "yarn", ErrorCode::kUnsupported,
       "m.gguf: 'llama.rope.scaling.type' is 'yarn': not supported"},
      {"llama.rope.scaling.type", "linear", ErrorCode::kBadInput,
       "m.gguf: 'llama.rope.scaling.factor' is missing"},
      {"llama.expert_count", 8, ErrorCode::kUnsupported,
       "m.gguf: 'llama.expert_count' is not 0: not supported in this architecture"},
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
  // The same numbers are no contradiction, also where f32 rounded them.
  EXPECT_TRUE(
      adopt(llama_keys(), gguf_memory(), R"({"hidden_size": 8, "rms_norm_eps": 1.00000001e-5})"));
}

// -- RoPE factors
// --------------------------------------------------------------------------------------

Floats factors_of(double theta, double factor, double low, double high, double original,
                  int64_t pairs) {
  Floats factors;
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
    const double wave = 2 * M_PI / frequency;
    const double smooth = std::clamp((original / wave - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

TEST(RopeFactors, ScalingIsRecovered) {
  const struct {
    double theta, factor, low, high, original;
    int64_t pairs;
  } kCases[] = {
      {500000, 8, 1, 4, 8192, 64},                               // Llama 3.1
      {500000, 32, 1, 4, 8192, 32},                              // Llama 3.2
      {500000, 32, 1, 4, 32, 16},   {10000, 4, 2, 8, 4096, 64},  // the same as 1, 4 and 2048
      {10000, 4, 1, 2, 2048, 64},   {10000, 8, 1.5, 3, 1000, 48},
      {100, 8, 1, 4, 64, 1},  // nothing is scaled
  };
  for (const auto& c : kCases) {
    const Floats factors = factors_of(c.theta, c.factor, c.low, c.high, c.original, c.pairs);
    const auto found = recover_llama3_scaling(c.theta, factors);
    ASSERT_TRUE(found) << c.original;
    EXPECT_TRUE(gives_rope_factors(*found, factors)) << c.original;
    RopeConfig other = *found;
    other.factor *= 2;
    if (*std::ranges::max_element(factors) > 1) {
      EXPECT_FALSE(gives_rope_factors(other, factors)) << c.original;
    }
  }
  const auto llama = recover_llama3_scaling(500000, factors_of(500000, 32, 1, 4, 8192, 32)).value();
  EXPECT_EQ(llama.factor, 32);
  EXPECT_EQ(llama.low_freq_factor, 1);
  EXPECT_EQ(llama.high_freq_factor, 4);
  EXPECT_EQ(llama.original_max_positions, 8192);
}

TEST(RopeFactors, OthersAreNotTakenForLlama3) {
  for (const Floats& factors : {Floats{1, 2, 1, 8}, Floats{0.5f, 1, 2, 8}, Floats{NAN, 1, 1, 1},
                                Floats{1, 5, 7, 2, 8, 3}}) {
    EXPECT_FALSE(recover_llama3_scaling(10000, factors));
  }
}

TEST(RopeFactors, AreHeldAgainstTheConfig) {
  Json keys = llama_keys();
  keys["llama.attention.key_length"] = 32;
  keys["llama.attention.value_length"] = 32;
  const auto with_factors = [&](const Floats& factors, const std::string& user) {
    auto source = gguf_memory();
    source->add("rope_freqs.weight", {std::ssize(factors)}, factors);
    return adopt(keys, std::move(source), user);
  };
  const Floats factors = factors_of(500000, 32, 1, 4, 32, 16);
  const auto scaling = [](int original) {
    return fmt::format(
        R"({{"rope_theta": 500000, "rope_scaling": {{"rope_type": "llama3", "factor": 32,
             "low_freq_factor": 1, "high_freq_factor": 4,
             "original_max_position_embeddings": {}}}}})",
        original);
  };
  const auto adopted = with_factors(factors, "").value();
  const ModelConfig config = parse_model_config(adopted.config, "", "c").value();
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(config.rope.original_max_positions, 32);
  ASSERT_EQ(adopted.format_rules.size(), 1u);
  EXPECT_EQ(adopted.format_rules[0].source, "gguf:rope_freqs.weight");

  EXPECT_TRUE(with_factors(factors, scaling(32)));
  const Floats unknown = {1, 1, 1, 1, 1, 1, 3, 2, 8, 8, 8, 8, 8, 8, 8, 8};
  const struct {
    Floats factors;
    std::string user, message;
  } kCases[] = {
      {factors, scaling(64),
       "user.json: the RoPE scaling is not the one of m.gguf (tensor 'rope_freqs.weight')"},
      {factors, R"({"rope_theta": 500000})",
       "user.json: the RoPE scaling is not the one of m.gguf (tensor 'rope_freqs.weight')"},
      {unknown, "",
       "m.gguf: the metadata lack the RoPE scaling that rope_freqs.weight was computed from; give "
       "--config FILE"},
      {{1, 1},
       "",
       "m.gguf: expected f32, one for each pair of a head's 32 dimensions (tensor "
       "'rope_freqs.weight' [2])"},
  };
  for (const auto& c : kCases) {
    const auto refused = with_factors(c.factors, c.user);
    ASSERT_FALSE(refused) << c.message;
    EXPECT_EQ(refused.error().message, c.message);
  }
  // Two scalings: neither is dropped for the other.
  keys["llama.rope.scaling.type"] = "linear";
  keys["llama.rope.scaling.factor"] = 2.0;
  const auto both = with_factors(factors, "");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(both.error().message.find("stands beside rope_freqs.weight"), std::string::npos)
      << both.error().message;
}

}  // namespace
}  // namespace ferry
