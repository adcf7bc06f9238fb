// Configs of encoder-decoders.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

// Sizes of one part of a T5Gemma, and the members that replace some of them.
nlohmann::json t5gemma_part(const std::string& members) {
  nlohmann::json part = nlohmann::json::parse(R"({"hidden_size": 16, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 4, "num_hidden_layers": 2, "vocab_size": 50})");
  part.update(nlohmann::json::parse("{" + members + "}"));
  return part;
}
Result<ModelConfig> t5gemma(const std::string& encoder, const std::string& decoder,
                            const std::string& members = {}, const std::string& generation = {}) {
  nlohmann::json config = nlohmann::json::parse("{" + members + "}");
  config["model_type"] = "t5gemma";
  config["encoder"] = t5gemma_part(encoder);
  config["decoder"] = t5gemma_part(decoder);
  return parse_model_config(config.dump(), generation, "config.json");
}

// Encoder and decoder have layers of their own. A window of the encoder has as many tokens on each
// side as the config states, and the token itself.
TEST(SourceConfig, T5GemmaHasTwoConfigs) {
  const auto config = t5gemma(
      R"("hidden_size": 36, "sliding_window": 5, "is_causal": false, "attention_bias": true)",
      R"("sliding_window": 7, "final_logit_softcapping": null, "query_pre_attn_scalar": 16)");
  ASSERT_TRUE(config) << config.error().message;
  const ModelConfig encoder = config->source_encoder();
  EXPECT_EQ(encoder.hidden_size, 36);
  EXPECT_EQ(config->source->hidden_size, 36);
  EXPECT_EQ(config->hidden_size, 16);
  EXPECT_EQ(encoder.sliding_window, 6);
  EXPECT_EQ(config->sliding_window, 7);
  EXPECT_TRUE(encoder.two_way);
  EXPECT_FALSE(config->two_way);
  EXPECT_TRUE(encoder.attention_bias);
  EXPECT_FALSE(config->source->bias);
  EXPECT_DOUBLE_EQ(encoder.scalars.embedding, 6.0);
  EXPECT_DOUBLE_EQ(config->scalars.embedding, 4.0);
  EXPECT_DOUBLE_EQ(*config->scalars.attention, 0.25);
  EXPECT_DOUBLE_EQ(*config->scalars.attention_softcap, 50.0);
  EXPECT_FALSE(config->scalars.logit_softcap);
  EXPECT_EQ(config->layer_types,
            (std::vector{LayerType::kSlidingAttention, LayerType::kFullAttention}));
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_TRUE(config->tie_unless_stored);
}

TEST(SourceConfig, T5GemmaTakesTokenIdsOfTheOuterConfig) {
  const auto plain = t5gemma("", "");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->decoder_start_id, 2);
  EXPECT_EQ(plain->eos_ids, std::vector<int64_t>{1});
  const auto inside = t5gemma(R"("bos_token_id": 9)", R"("bos_token_id": 8)");
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->decoder_start_id, 8);
  const auto outside = t5gemma("", R"("bos_token_id": 8, "eos_token_id": 7)",
                               R"("bos_token_id": 5, "eos_token_id": [3, 4])");
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->decoder_start_id, 5);
  EXPECT_EQ(outside->bos_id, 5);
  EXPECT_EQ(outside->eos_ids, (std::vector<int64_t>{3, 4}));
  const auto stated = t5gemma("", "", "", R"({"bos_token_id": 6})");
  ASSERT_TRUE(stated);
  EXPECT_EQ(stated->decoder_start_id, 6);
}

TEST(SourceConfig, T5GemmaThatIsNotSupportedIsRefused) {
  struct Case {
    std::string encoder, decoder, members;
    ErrorCode code;
    const char* why;
  };
  const Case cases[] = {
      {R"("vocab_size": 51)", "", "", ErrorCode::kUnsupported, "encoder.vocab_size' is 51"},
      {"", R"("is_causal": false)", "", ErrorCode::kUnsupported, "decoder.is_causal"},
      {"", "", R"("is_encoder_decoder": false)", ErrorCode::kUnsupported, "is_encoder_decoder"},
      {R"("model_type": "gemma2")", "", "", ErrorCode::kUnsupported,
       "encoder.model_type' is 'gemma2', not t5_gemma_module"},
      {R"("hidden_size": -1)", "", "", ErrorCode::kBadInput, "encoder.hidden_size"},
      {R"("num_hidden_layers": 100000000)", "", "", ErrorCode::kBadInput,
       "encoder.num_hidden_layers"},
      {"", R"("num_attention_heads": 0)", "", ErrorCode::kBadInput, "decoder.num_attention_heads"},
      {"", R"("num_key_value_heads": 3)", "", ErrorCode::kBadInput, "decoder.num_key_value_heads"},
      {"", R"("query_pre_attn_scalar": 0)", "", ErrorCode::kBadInput,
       "decoder.query_pre_attn_scalar"},
      {"", "", R"("quantization_config": {"quant_method": "awq"})", ErrorCode::kUnsupported,
       "quantization_config"},
      {R"("quantization_config": {})", "", "", ErrorCode::kUnsupported, "quantization_config"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.why);
    const auto config = t5gemma(one.encoder, one.decoder, one.members);
    ASSERT_FALSE(config);
    EXPECT_EQ(config.error().code, one.code) << config.error().message;
    EXPECT_NE(config.error().message.find(one.why), std::string::npos) << config.error().message;
  }
  const auto newer = parse_model_config(R"({"model_type": "t5gemma2"})", {}, "config.json");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(newer.error().message.find("is 't5gemma2': not supported"), std::string::npos);
  const auto no_object =
      parse_model_config(R"({"model_type": "t5gemma", "encoder": 3})", {}, "config.json");
  EXPECT_FALSE(no_object);
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
