// RoPE of GGUF files: the scaling that stored factors follow, and the metadata.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "converters/config/model_config.h"
#include "dialects/gguf/model/rope.h"
#include "tests/dialects/gguf_memory.h"

namespace ferry::converters::rope_test {
namespace {

// -- RoPE factors

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
      {500000, 32, 1, 4, 32, 16},   {10000, 4, 2, 8, 4096, 64},  // the same as with 1, 4 and 2048
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
  EXPECT_EQ(adopted.find("gguf:rope_freqs.weight")->unused,
            "checked: it is what the config's rope scaling gives");

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
      {unknown, scaling(32),
       "user.json: the RoPE scaling is not the one of m.gguf (tensor 'rope_freqs.weight')"},
      {{1, 1, 1, 1, 1, 1, 0, 2, 8, 8, 8, 8, 8, 8, 8, 8},
       "",
       "m.gguf: element 6 is 0, not from 1e-06 to 1000000 (tensor 'rope_freqs.weight' [16])"},
      {{1, 1, 1, 1, 1, 1, NAN, 2, 8, 8, 8, 8, 8, 8, 8, 8},
       "",
       "m.gguf: element 6 is nan, not from 1e-06 to 1000000 (tensor 'rope_freqs.weight' [16])"},
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
  // Factors that no parameters of llama3 give divide the frequencies, at any length.
  const ModelConfig as_it_stands =
      parse_model_config(with_factors(unknown, "").value().config, "", "c").value();
  EXPECT_EQ(as_it_stands.rope.type, RopeConfig::Type::kLongRope);
  EXPECT_EQ(as_it_stands.rope.factors, std::vector<double>(unknown.begin(), unknown.end()));
  EXPECT_EQ(as_it_stands.rope.long_factors, as_it_stands.rope.factors);
  EXPECT_EQ(as_it_stands.rope.attention_factor, 1.0);
  // A file with two scalings is refused: neither replaces the other.
  keys["llama.rope.scaling.type"] = "linear";
  keys["llama.rope.scaling.factor"] = 2.0;
  const auto both = with_factors(factors, "");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(both.error().message.find("stands beside rope_freqs.weight"), std::string::npos)
      << both.error().message;
}

// -- longrope and other scalings

class Phi3Gguf : public testing::Test {
 protected:
  Json keys = keys_of("phi3");
  Floats shorter = {1.0F, 1.25F}, longer = {1.5F, 4.0F};

  Phi3Gguf() {
    keys["phi3.attention.sliding_window"] = 0;
    keys["phi3.rope.dimension_count"] = 4;
    keys["phi3.rope.scaling.original_context_length"] = 32;
    keys["phi3.rope.scaling.attn_factor"] = 1.5;
  }
  Result<AdoptedMemory> made(const std::string& user = {}) {
    auto source = gguf_memory();
    if (!longer.empty()) source->add("rope_factors_long.weight", {std::ssize(longer)}, longer);
    if (!shorter.empty()) source->add("rope_factors_short.weight", {std::ssize(shorter)}, shorter);
    return adopt(keys, std::move(source), user);
  }
};

TEST_F(Phi3Gguf, TensorsOfFactorsAreLongRope) {
  const auto adopted = made();
  ASSERT_TRUE(adopted) << adopted.error().message;
  const ModelConfig config = parse_model_config(adopted->config, "", "c").value();
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kLongRope);
  EXPECT_EQ(config.rope.factors, (std::vector{1.0, 1.25}));
  EXPECT_EQ(config.rope.long_factors, (std::vector{1.5, 4.0}));
  EXPECT_EQ(config.rope.original_max_positions, 32);
  EXPECT_EQ(config.rope.attention_factor, 1.5);
  EXPECT_EQ(config.sliding_window, std::nullopt);
}

TEST_F(Phi3Gguf, APartOfEachHeadMayBeTurned) {
  keys["phi3.rope.dimension_count"] = 2;
  shorter = {1.0F};
  longer = {2.0F};
  const auto adopted = made();
  ASSERT_TRUE(adopted) << adopted.error().message;
  EXPECT_EQ(parse_model_config(adopted->config, "", "c").value().rotary_dim(), 2);
}

TEST_F(Phi3Gguf, TheUsersLongRopeMustBeTheFiles) {
  const auto user = [](double second, double attention) {
    return fmt::format(R"({{"rope_theta": 500000.0, "original_max_position_embeddings": 32,
        "rope_scaling": {{"type": "longrope", "short_factor": [1, 1.25],
                          "long_factor": [1.5, {}], "attention_factor": {}}}}})",
                       second, attention);
  };
  EXPECT_TRUE(made(user(4, 1.5)));
  for (const std::string& other :
       {user(5, 1.5), user(4, 1.25), std::string(R"({"rope_theta": 500000.0})")}) {
    const auto refused = made(other);
    ASSERT_FALSE(refused) << other;
    EXPECT_EQ(refused.error().message,
              "user.json: the RoPE scaling is not the one of m.gguf (tensor "
              "'rope_factors_short.weight')");
  }
}

TEST_F(Phi3Gguf, RefusesHalfOfLongRope) {
  const auto message = [&] {
    const auto refused = made();
    return refused ? "" : refused.error().message;
  };
  shorter.clear();
  EXPECT_EQ(message(), "m.gguf: longrope needs the tensor 'rope_factors_short.weight'");
  shorter = {1.0F, 1.25F};
  longer.clear();
  EXPECT_EQ(message(), "m.gguf: longrope needs the tensor 'rope_factors_long.weight'");
  longer = {1.5F, 4.0F, 5.0F};
  EXPECT_EQ(message(),
            "m.gguf: expected f32, one for each pair of a head's 4 dimensions (tensor "
            "'rope_factors_long.weight' [3])");
  longer = {1.5F, 4.0F};
  keys["phi3.rope.scaling.type"] = "linear";
  keys["phi3.rope.scaling.factor"] = 2.0;
  EXPECT_EQ(message(),
            "m.gguf: 'phi3.rope.scaling.type' stands beside rope_factors_short.weight: not "
            "supported");
  keys.erase("phi3.rope.scaling.type");
  keys.erase("phi3.rope.scaling.factor");
  keys.erase("phi3.rope.scaling.original_context_length");
  EXPECT_EQ(
      message(),
      "m.gguf: the metadata lack phi3.rope.scaling.original_context_length; config can state them");
}

// A factor without a type means linear scaling, under either of its keys.
TEST(GgufRope, AFactorAloneIsLinear) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    Json keys = llama_keys();
    keys[key] = 4.0;
    const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
    EXPECT_EQ(config.rope.type, RopeConfig::Type::kLinear) << key;
    EXPECT_EQ(config.rope.factor, 4.0) << key;
    keys["llama.rope.scaling.type"] = "none";
    EXPECT_EQ(parse_model_config(adopt(keys).value().config, "", "c").value().rope.type,
              RopeConfig::Type::kDefault);
  }
}

// The keys of yarn get the names that configs have. Keys that the reference lacks are refused.
TEST(GgufRope, YarnIsThatOfTheConfig) {
  Json keys = llama_keys();
  keys["llama.rope.scaling.type"] = "yarn";
  keys["llama.rope.scaling.factor"] = 4.0;
  keys["llama.rope.scaling.original_context_length"] = 32;
  keys["llama.rope.scaling.yarn_beta_fast"] = 24.0;
  keys["llama.rope.scaling.yarn_beta_slow"] = 2.0;
  keys["llama.rope.scaling.yarn_attn_factor"] = 1.125;
  keys["llama.rope.scaling.yarn_ext_factor"] = 1.0;
  keys["llama.rope.scaling.yarn_truncate"] = false;
  const auto source = gguf_memory();
  const std::string path = source->path();
  const JsonFields fields(keys, path, "");
  const GgufKeys named = {fields, "llama."};
  const auto rope = [&] {
    return read_gguf_rope({.keys = &named,
                           .architecture = find_gguf_architectures("llama").front(),
                           .tensors = source.get(),
                           .theta = 500000.0,
                           .head_dim = 4,
                           .max_positions = 128});
  };
  EXPECT_EQ(rope().value().parameters, Json({{"rope_type", "yarn"},
                                             {"rope_theta", 500000.0},
                                             {"factor", 4.0},
                                             {"original_max_position_embeddings", 32},
                                             {"beta_fast", 24.0},
                                             {"beta_slow", 2.0},
                                             {"attention_factor", 1.125},
                                             {"truncate", false}}));
  EXPECT_EQ(rope().value().original_positions, 32);
  keys["llama.rope.scaling.yarn_ext_factor"] = 0.5;
  EXPECT_EQ(rope().error().message,
            "m.gguf: 'llama.rope.scaling.yarn_ext_factor' is 0.5: only 1 is supported");
  keys["llama.rope.scaling.yarn_ext_factor"] = 1;
  keys["llama.rope.scaling.yarn_log_multiplier"] = 0.1;
  EXPECT_EQ(rope().error().message,
            "m.gguf: 'llama.rope.scaling.yarn_log_multiplier' is 0.1: only 0 is supported");
}

}  // namespace
}  // namespace ferry::converters::rope_test
