// The rates of RoPE's pairs for every kind of scaling, and which factors LongRoPE takes.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "converters/longrope.h"
#include "converters/model_config.h"
#include "core/file.h"

namespace ferry {
namespace {

void expect_near(const std::vector<float>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i] / expected[i], 1.0, 1e-6) << i;
  }
}

TEST(RopeFrequencies, PlainAndLinear) {
  ModelConfig c;
  c.head_dim = 8;
  expect_near(rope_inverse_frequencies(c.rope, c.rotary_dim()), {1, 0.1, 0.01, 0.001});
  c.rope.type = RopeConfig::Type::kLinear;
  c.rope.factor = 4;
  expect_near(rope_inverse_frequencies(c.rope, c.rotary_dim()), {0.25, 0.025, 0.0025, 0.00025});
  c.rope = {};
  c.rope.partial_rotary_factor = 0.5;
  expect_near(rope_inverse_frequencies(c.rope, c.rotary_dim()), {1, 0.01});
}

// Computed in f64 from the published formula; dimensions 13 to 17 fall into the smooth part.
TEST(RopeFrequencies, LlamaThree) {
  const std::string path = "configs/Llama-3.2-1B.json";
  const std::string text = read_text_file(FERRY_TESTDATA "/" + path, 1 << 20).value();
  const ModelConfig c = parse_model_config(text, "", path).value();
  expect_near(
      rope_inverse_frequencies(c.rope, c.rotary_dim()),
      {1.0,           0.66360124,    0.4403666,     0.29222782,    0.19392274,    0.12868737,
       0.0853971,     0.056669621,   0.037606031,   0.024955409,   0.01656044,    0.010989529,
       0.0072926647,  0.0048394213,  0.003211446,   0.0012905479,  0.0004295568,  9.7082878e-05,
       1.9461638e-05, 1.2914767e-05, 8.5702555e-06, 5.6872322e-06, 3.7740543e-06, 2.5044671e-06,
       1.6619675e-06, 1.1028837e-06, 7.3187497e-07, 4.8567313e-07, 3.2229329e-07, 2.1387423e-07,
       1.419272e-07,  9.4183067e-08});
}

// Phi-4-mini's way: factors beside a length at the top level, for three quarters of each head.
std::string longrope(const std::string& rope) {
  return R"({"model_type": "phi3", "vocab_size": 10, "hidden_size": 32, "intermediate_size": 8,
             "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 131072,
             "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
             "rope_scaling": )" +
         rope + "}";
}

TEST(RopeFrequencies, LongRope) {
  const Result<ModelConfig> c = parse_model_config(
      longrope(R"({"type": "longrope", "short_factor": [1, 2, 4], "long_factor": [2, 8, 10]})"), "",
      "config.json");
  ASSERT_TRUE(c.has_value()) << c.error().message;
  RopeConfig rope = c->rope;
  EXPECT_EQ(rope.type, RopeConfig::Type::kLongRope);
  EXPECT_EQ(rope.original_max_positions, 4096);
  EXPECT_EQ(c->rms_norm_eps, 1e-5);
  // sqrt(1 + ln(32) / ln(4096)) = sqrt(1 + 5 / 12)
  EXPECT_NEAR(rope.attention_factor, 1.1902380714238083, 1e-12);
  expect_near(rope_inverse_frequencies(rope, 6), {1.0, 0.0232079442, 0.000538608673});
  rope.factors = rope.long_factors;
  expect_near(rope_inverse_frequencies(rope, 6), {0.5, 0.00580198604, 0.000215443469});
}

TEST(RopeFrequencies, LongRopeIsChecked) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "longrope", "short_factor": [1, 1, 1]})",
       "'rope_scaling.long_factor' is missing"},
      {R"({"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1, 1]})",
       "'rope_scaling.short_factor' has 2 numbers for 3 pairs of rotary dimensions"},
      {R"({"type": "longrope", "short_factor": [1, 1, 0], "long_factor": [1, 1, 1]})",
       "'rope_scaling.short_factor' is 0"},
      {R"({"type": "longrope", "short_factor": "x", "long_factor": [1, 1, 1]})",
       "'rope_scaling.short_factor' is not a list of numbers"},
      {R"({"type": "longrope", "short_factor": [1, "x", 1], "long_factor": [1, 1, 1]})",
       "'rope_scaling.short_factor' is not a number"},
  };
  for (const auto& [rope, message] : cases) {
    const Result<ModelConfig> c = parse_model_config(longrope(rope), "", "config.json");
    ASSERT_FALSE(c.has_value()) << rope;
    EXPECT_EQ(c.error().code, ErrorCode::kBadInput);
    EXPECT_NE(c.error().message.find(message), std::string::npos) << c.error().message;
  }
}

TEST(LongRope, BothSetsAreInProgramsForContextsAboveTheOriginalLength) {
  RopeConfig rope;
  rope.type = RopeConfig::Type::kLongRope;
  rope.original_max_positions = 48;
  rope.factors = {1.0, 1.5};
  rope.long_factors = {1.0, 4.0};
  const auto limit = [&](int64_t context, int64_t prefill) {
    return longrope_switch(rope, {.context_length = context, .prefill_length = prefill});
  };
  EXPECT_EQ(limit(48, 48), std::nullopt);
  EXPECT_EQ(limit(49, 1), 48);
  EXPECT_EQ(limit(256, 48), 48);
  EXPECT_EQ(limit(256, 256), 48);
  rope.long_factors = rope.factors;
  EXPECT_EQ(limit(256, 49), std::nullopt);
  rope.long_factors = {1.0, 4.0};
  rope.type = RopeConfig::Type::kLlama3;
  EXPECT_EQ(limit(256, 49), std::nullopt);
}

TEST(LongRope, TheNoteSaysWhatPlainPositionsAreRightFor) {
  const std::string cannot = longrope_note(48, {.context_length = 256, .prefill_length = 48});
  EXPECT_NE(cannot.find("more than 48 tokens"), std::string::npos) << cannot;
  EXPECT_NE(cannot.find("with --prefill-length 49"), std::string::npos) << cannot;
  const std::string can = longrope_note(48, {.context_length = 256, .prefill_length = 49});
  EXPECT_NE(can.find("prompts of any length"), std::string::npos) << can;
}

}  // namespace
}  // namespace ferry
