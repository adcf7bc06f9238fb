// Programs carry frequencies for RoPE, or a table. The values are right in whatever tiles they are
// computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "converters/families/families.h"
#include "converters/family.h"

namespace ferry::converters::rope_table_test {
namespace {

constexpr int64_t kContext = 40, kRotary = 8, kPairs = kRotary / 2, kHead = 32;

ModelConfig tiny_config() {
  const Result<ModelConfig> config = parse_model_config(
      R"({"model_type":"glm","vocab_size":16,"hidden_size":16,"intermediate_size":8,
          "num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,"head_dim":32,
          "partial_rotary_factor":0.25,"max_position_embeddings":64,"rms_norm_eps":1e-6,
          "rope_theta":100.0,"hidden_act":"silu","tie_word_embeddings":false})",
      "", "config.json");
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *config;
}

std::vector<float> in_tiles(const graph::Literal& literal, size_t tile) {
  std::vector<float> values(literal.bytes / sizeof(float), NAN);
  const auto bytes = std::as_writable_bytes(std::span(values));
  for (size_t at = 0; at < bytes.size(); at += tile) {
    literal.fill(at, bytes.subspan(at, std::min(tile, bytes.size() - at)));
  }
  return values;
}

// cos and sin of all other kinds are computed, so that a program does not grow with its context.
TEST(RopeTable, IsNoTableButTheFrequenciesOfBothHalves) {
  const ModelConfig config = tiny_config();
  ASSERT_EQ(config.head_dim, kHead);
  ASSERT_EQ(config.rotary_dim(), kRotary);
  const Methods methods = config.family->text_decoder()
                              .build(config, {.context_length = kContext, .prefill_length = 4})
                              .value();
  const graph::Graph& graph = methods[0].graph;
  int found = 0;
  for (const graph::Literal& literal : graph.literals) {
    if (!literal.key.starts_with("rope.")) continue;
    ++found;
    const std::vector<float> whole = in_tiles(literal, literal.bytes);
    ASSERT_EQ(whole.size(), static_cast<size_t>(kRotary));
    for (int64_t i = 0; i < kPairs; ++i) {
      const double expected = std::pow(100.0, -static_cast<double>(i) / kPairs);
      EXPECT_NEAR(whole[static_cast<size_t>(kPairs + i)], expected, 1e-7 * expected) << i;
      EXPECT_EQ(whole[static_cast<size_t>(i)], -whole[static_cast<size_t>(kPairs + i)]) << i;
    }
    for (size_t tile : {1U, 3U, 31U}) EXPECT_EQ(in_tiles(literal, tile), whole);
  }
  EXPECT_EQ(found, 1);
}

// The table of longrope has rows of the long factors for the whole context, then rows of the short
// factors.
TEST(RopeTable, HasBothSetsOfLongRope) {
  ModelConfig config = tiny_config();
  config.rope.type = RopeConfig::Type::kLongRope;
  config.rope.original_max_positions = 12;
  config.rope.factors = {1.0, 1.1, 1.2, 1.3};
  config.rope.long_factors = {1.0, 2.0, 3.0, 4.0};
  config.rope.attention_factor = 1.5;
  config.sliding_rope = config.rope;
  const Methods methods = families::llama::kFamily.text_decoder()
                              .build(config, {.context_length = kContext, .prefill_length = 4})
                              .value();
  const graph::Graph& graph = methods[0].graph;
  const auto cos = std::ranges::find_if(graph.literals, [](const graph::Literal& literal) {
    return literal.key.starts_with("rope.cos");
  });
  ASSERT_NE(cos, graph.literals.end());
  const std::vector<float> rows = in_tiles(*cos, cos->bytes);
  ASSERT_EQ(rows.size(), static_cast<size_t>((kContext + 12) * kPairs));
  for (int64_t row = 0; row < kContext + 12; ++row) {
    const bool is_long = row < kContext;
    const int64_t position = is_long ? row : row - kContext;
    for (int64_t i = 0; i < kPairs; ++i) {
      const auto pair = static_cast<size_t>(i);
      const double factor = (is_long ? config.rope.long_factors : config.rope.factors)[pair];
      const double angle = static_cast<double>(position) / factor *
                           std::pow(100.0, -static_cast<double>(i) / kPairs);
      EXPECT_NEAR(rows[static_cast<size_t>(row * kPairs + i)], 1.5 * std::cos(angle), 1e-5)
          << row << " " << i;
    }
  }
  for (size_t tile : {1U, 33U, 1000U}) EXPECT_EQ(in_tiles(*cos, tile), rows);
}

}  // namespace
}  // namespace ferry::converters::rope_table_test
