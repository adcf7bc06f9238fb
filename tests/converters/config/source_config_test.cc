// Configs of encoder-decoders.
#include <gtest/gtest.h>

#include "converters/config/model_config.h"

namespace ferry::converters {
namespace {

Result<ModelConfig> read(const std::string& members, const std::string& generation = {}) {
  return parse_model_config(
      R"({"model_type": "t5", "d_model": 16, "d_kv": 4, "num_heads": 2)" + members + "}",
      generation, "config.json");
}
ModelConfig good(const std::string& members, const std::string& generation = {}) {
  auto config = read(members, generation);
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig();
}
void expect_refused(const std::string& members, ErrorCode code, const std::string& why) {
  const auto config = read(members);
  ASSERT_FALSE(config) << members;
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_NE(config.error().message.find(why), std::string::npos) << config.error().message;
}

TEST(SourceConfig, LayersOfEncoderAndDecoder) {
  const ModelConfig config = good(R"(, "num_layers": 3, "num_decoder_layers": 5)");
  ASSERT_TRUE(config.source);
  EXPECT_EQ(config.source->num_layers, 3);
  EXPECT_EQ(config.num_layers, 5);
  EXPECT_EQ(good(R"(, "num_layers": 3)").num_layers, 3);
  EXPECT_EQ(good(R"(, "num_layers": 3, "num_decoder_layers": null)").num_layers, 3);
  // The other name says nothing about the decoder, which keeps the default of the class.
  const ModelConfig other = good(R"(, "num_hidden_layers": 2)");
  EXPECT_EQ(other.source->num_layers, 2);
  EXPECT_EQ(other.num_layers, 6);
  EXPECT_EQ(config.source_encoder().num_layers, 3);
  EXPECT_TRUE(config.source_encoder().two_way);
}

// The head is tied whatever tie_word_embeddings says, which decides about its scale.
TEST(SourceConfig, ScaleOfTheHead) {
  EXPECT_DOUBLE_EQ(good("").scalars.logits, 0.25);
  EXPECT_DOUBLE_EQ(good(R"(, "tie_word_embeddings": false)").scalars.logits, 1.0);
  EXPECT_TRUE(good(R"(, "tie_word_embeddings": false)").tie_word_embeddings);
  EXPECT_DOUBLE_EQ(
      good(R"(, "tie_word_embeddings": true, "scale_decoder_outputs": false)").scalars.logits, 1.0);
}

TEST(SourceConfig, ActivationAndGate) {
  EXPECT_EQ(good("").activation, Activation::kRelu);
  EXPECT_EQ(good(R"(, "feed_forward_proj": "gated-gelu")").activation, Activation::kGeluTanh);
  EXPECT_EQ(good(R"(, "feed_forward_proj": "gelu")").activation, Activation::kGelu);
  EXPECT_EQ(good(R"(, "dense_act_fn": "silu")").activation, Activation::kSilu);
  expect_refused(R"(, "feed_forward_proj": "gated-selu")", ErrorCode::kUnsupported,
                 "'feed_forward_proj' is 'selu'");
}

TEST(SourceConfig, MarianHasOneTable) {
  const auto marian = [](const std::string& members) {
    return parse_model_config(R"({"model_type": "marian", "d_model": 16, "encoder_layers": 2,
        "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 2)" +
                                  members + "}",
                              {}, "config.json");
  };
  const auto config = marian(R"(, "scale_embedding": true)");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->source->num_layers, 2);
  EXPECT_EQ(config->source->head_dim, 4);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_DOUBLE_EQ(config->scalars.embedding, 4.0);
  for (const char* members :
       {R"(, "share_encoder_decoder_embeddings": false)", R"(, "tie_word_embeddings": false)",
        R"(, "decoder_vocab_size": 7)", R"(, "is_encoder_decoder": false)"}) {
    const auto refused = marian(members);
    ASSERT_FALSE(refused) << members;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported) << refused.error().message;
  }
}

TEST(SourceConfig, StartOfTheDecoder) {
  EXPECT_EQ(good(R"(, "decoder_start_token_id": 3)").decoder_start_id, 3);
  EXPECT_EQ(
      good(R"(, "decoder_start_token_id": 3)", R"({"decoder_start_token_id": 4})").decoder_start_id,
      4);
  EXPECT_EQ(good("", R"({"bos_token_id": 5})").decoder_start_id, 5);
  EXPECT_FALSE(good("").decoder_start_id);
}

TEST(SourceConfig, OtherModelsAreRefused) {
  expect_refused(R"(, "is_encoder_decoder": false)", ErrorCode::kUnsupported, "is_encoder_decoder");
  expect_refused(R"(, "is_causal": false)", ErrorCode::kUnsupported, "is_causal");
  expect_refused(R"(, "relative_attention_max_distance": 16)", ErrorCode::kUnsupported,
                 "relative_attention_max_distance");
  expect_refused(R"(, "relative_attention_num_buckets": 3)", ErrorCode::kBadInput,
                 "relative_attention_num_buckets");
  expect_refused(R"(, "num_decoder_layers": 0)", ErrorCode::kBadInput, "num_decoder_layers");
  expect_refused(R"(, "d_ff": 1e3)", ErrorCode::kBadInput, "d_ff");
}

}  // namespace
}  // namespace ferry::converters
