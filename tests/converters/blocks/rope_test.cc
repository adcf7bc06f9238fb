// The frequencies of RoPE for every kind of scaling, and the choice of LongRoPE's factors.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/rope.h"
#include "converters/config/model_config.h"
#include "core/file.h"

namespace ferry::converters::rope_test {
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

// The expected values are computed in f64 from the published formula. Dimensions 13 to 17 are in
// the smooth part.
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

struct YarnCase {
  const char* type;
  const char* rope;  // further keys of the config, as text
  double attention_factor;
  std::vector<double> full;
  std::vector<double> sliding = {};
};

// The frequencies and factors are those of transformers 5.23.0 for heads of 16 dimensions (glm
// rotates half of 32).
TEST(RopeFrequencies, Yarn) {
  const std::vector<double> usual = {1.0,           0.237170815,    0.049999997,    0.00790569466,
                                     0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
  const std::vector<double> untruncated = {
      1.0,           0.225637481,    0.04270567,     0.00790569466,
      0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
  const std::vector<double> global = {1.0,
                                      0.111142464,
                                      0.00790569466,
                                      0.00140585331,
                                      0.000250000012,
                                      4.44569851e-05,
                                      7.90569356e-06,
                                      1.40585337e-06};
  const std::vector<double> local = {1.0,           0.316227764,   0.100000001,   0.0316227786,
                                     0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786};
  const YarnCase cases[] = {
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 128})",
       1.138629436111989, usual},
      {"llama",
       R"("rope_scaling": {"type": "yarn", "factor": 4.0})",
       1.138629436111989,
       {1.0, 0.25693506, 0.0625, 0.0138349654, 0.00249999994, 0.000790569466, 0.000250000012,
        7.90569466e-05}},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false,
          "original_max_position_embeddings": 128})",
       1.138629436111989, untruncated},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": null,
          "original_max_position_embeddings": 128})",
       1.138629436111989, untruncated},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7,
          "mscale_all_dim": 1.2, "original_max_position_embeddings": 128})",
       0.9405715251010841, usual},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7,
          "original_max_position_embeddings": 128})",
       1.138629436111989, usual},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5,
          "mscale": 0.7, "mscale_all_dim": 1.2, "original_max_position_embeddings": 128})",
       1.5, usual},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 0,
          "beta_slow": null, "original_max_position_embeddings": 128})",
       1.138629436111989, usual},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": null,
          "original_max_position_embeddings": 128})",
       1.138629436111989, usual},
      {"llama",
       R"("rope_scaling": {"rope_type": "yarn", "factor": 0.5,
          "original_max_position_embeddings": 64})",
       1.0,
       {1.0, 0.421637028, 0.166666672, 0.0632455572, 0.0199999996, 0.00632455572, 0.00200000009,
        0.000632455572}},
      {"llama",
       R"("rope_scaling": {"rope_type": "yarn", "factor": 2,
          "original_max_position_embeddings": 4})",
       1.0693147180559945,
       {1.0, 0.158113882, 0.0500000007, 0.0158113893, 0.00499999989, 0.00158113893, 0.000500000024,
        0.000158113893}},
      {"glm",
       R"("head_dim": 32, "rope_theta": 500.0, "rope_parameters": {"rope_type": "yarn",
          "factor": 4.0, "original_max_position_embeddings": 128, "partial_rotary_factor": 0.5})",
       1.138629436111989,
       {1.0, 0.373638898, 0.132171392, 0.0425465479, 0.0111803403, 0.00514142821, 0.00236435398,
        0.00108727964}},
      // In an object for one kind of layer, `truncate` and the original length beside the object
      // have no effect.
      {"gemma3_text", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false,
          "original_max_position_embeddings": 128})",
       1.138629436111989, global, local},
      {"gemma3_text",
       R"("original_max_position_embeddings": 32,
          "rope_scaling": {"rope_type": "yarn", "factor": 4.0})",
       1.138629436111989,
       {1.0, 0.133370951, 0.0158113893, 0.00140585331, 0.000250000012, 4.44569851e-05,
        7.90569356e-06, 1.40585337e-06},
       local},
      {"gemma3_text",
       R"("rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0,
          "truncate": false, "rope_theta": 1e6, "original_max_position_embeddings": 128},
          "sliding_attention": {"rope_type": "linear", "factor": 2.0}})",
       1.138629436111989,
       global,
       {0.5, 0.158113882, 0.0500000007, 0.0158113893, 0.00499999989, 0.00158113893, 0.000500000024,
        0.000158113893}},
  };
  for (const YarnCase& yarn : cases) {
    SCOPED_TRACE(yarn.rope);
    nlohmann::json config = {{"model_type", yarn.type},
                             {"head_dim", 16},
                             {"num_hidden_layers", 2},
                             {"max_position_embeddings", 512}};
    config.update(nlohmann::json::parse("{" + std::string(yarn.rope) + "}"));
    const Result<ModelConfig> c = parse_model_config(config.dump(), "", "config.json");
    ASSERT_TRUE(c.has_value()) << c.error().message;
    EXPECT_EQ(c->rope.type, RopeConfig::Type::kYarn);
    EXPECT_NEAR(c->rope.attention_factor, yarn.attention_factor, 1e-12);
    expect_near(rope_inverse_frequencies(c->rope, c->rotary_dim()), yarn.full);
    if (yarn.sliding.empty()) continue;
    EXPECT_EQ(c->sliding_rope.attention_factor, 1.0);
    expect_near(rope_inverse_frequencies(c->sliding_rope, c->rotary_dim()), yarn.sliding);
  }
}

TEST(RopeFrequencies, YarnIsChecked) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "yarn"})", "'rope_scaling.factor' is missing"},
      {R"({"type": "yarn", "factor": "x"})", "'rope_scaling.factor' is not a number"},
      {R"({"type": "yarn", "factor": 2, "rope_theta": 1})",
       "'rope_scaling.rope_theta' is 1: yarn divides by its logarithm"},
      {R"({"type": "yarn", "factor": 2, "beta_fast": -1})", "'rope_scaling.beta_fast' is -1"},
      {R"({"type": "yarn", "factor": 2, "beta_slow": 1e-300})",
       "'rope_scaling.beta_slow' is 1e-300"},
      {R"({"type": "yarn", "factor": 2, "mscale": -1})", "'rope_scaling.mscale' is -1"},
      {R"({"type": "yarn", "factor": 2, "truncate": 1})",
       "'rope_scaling.truncate' is not true or false"},
      {R"({"type": "yarn", "factor": 2, "original_max_position_embeddings": 0})",
       "'rope_scaling.original_max_position_embeddings' is 0"},
  };
  for (const auto& [rope, message] : cases) {
    const std::string text =
        R"({"model_type": "llama", "rope_scaling": )" + std::string(rope) + "}";
    const Result<ModelConfig> c = parse_model_config(text, "", "config.json");
    ASSERT_FALSE(c.has_value()) << rope;
    EXPECT_EQ(c.error().code, ErrorCode::kBadInput);
    EXPECT_NE(c.error().message.find(message), std::string::npos) << c.error().message;
  }
}

// powf() differs between C libraries in the last bit. The nearest f32 of a power does not.
TEST(RopeFrequencies, PowersAreTheNearestFloats) {
  int pairs = 0;
  for (const double theta : {10000.0, 500000.0, 1e6, 13333.7, 177.0, 429.0, 527.0, 590.0}) {
    RopeConfig rope;
    rope.theta = theta;
    for (const int64_t dim : {32, 40, 48, 64, 80, 96, 128, 256}) {
      const std::vector<float> rates = rope_inverse_frequencies(rope, dim);
      for (int64_t i = 0; i < dim; i += 2, ++pairs) {
        const float exponent = static_cast<float>(i) / static_cast<float>(dim);
        const auto base = static_cast<long double>(static_cast<float>(theta));
        const auto power = static_cast<float>(std::pow(base, static_cast<long double>(exponent)));
        EXPECT_EQ(rates[static_cast<size_t>(i / 2)], 1.0F / power)
            << theta << " " << dim << " " << i;
      }
    }
  }
  EXPECT_GT(pairs, 2500);
}

// A config as that of Phi-4-mini: the factors are in the object, a length is at the top level, and
// three quarters of each head are rotated.
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
  EXPECT_NE(cannot.find("with a prefill length of 49"), std::string::npos) << cannot;
  const std::string can = longrope_note(48, {.context_length = 256, .prefill_length = 49});
  EXPECT_NE(can.find("prompts of any length"), std::string::npos) << can;
}

}  // namespace
}  // namespace ferry::converters::rope_test
