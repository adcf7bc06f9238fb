// Sizes that a config states under a family's own names, or that follow from other sizes.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "converters/config/model_config.h"

namespace ferry::converters::model_config_sizes_test {
namespace {

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

}  // namespace
}  // namespace ferry::converters::model_config_sizes_test
