// Config fields that only Gemma 3n has. The tests of all families compare its outputs with the
// fixture.

#include "converters/blocks/gemma3n.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "converters/blocks/shared_layers.h"
#include "converters/blocks/static_ports.h"
#include "converters/config/model_config.h"
#include "converters/family.h"

namespace ferry::converters::gemma3n_test {
namespace {

using nlohmann::json;

json gemma3n(const json& more) {
  json config = {{"model_type", "gemma3n_text"},
                 {"num_hidden_layers", 6},
                 {"num_kv_shared_layers", 2},
                 {"intermediate_size", {96, 96, 96, 96, 96, 96}}};
  config.update(more);
  return config;
}

Result<ModelConfig> parse(const json& more) {
  return parse_model_config(gemma3n(more).dump(), "", "config.json");
}

std::string refusal(const json& more) {
  const auto parsed = parse(more);
  if (!parsed) return parsed.error().message;
  const auto built =
      parsed->family->text_decoder().build(*parsed, {.context_length = 16, .prefill_length = 8});
  return built ? "accepted" : built.error().message;
}

TEST(Gemma3n, TheLastLayersHaveNoCaches) {
  const auto config = parse(json::object());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->intermediate_size, 96);
  EXPECT_EQ(first_shared_layer(*config), 4);
  EXPECT_TRUE(has_cache(*config, 3));
  EXPECT_FALSE(has_cache(*config, 4));
  const auto all = parse({{"num_kv_shared_layers", 6}});
  ASSERT_TRUE(all);
  EXPECT_EQ(first_shared_layer(*all), 6);  // no layer shares caches, as in the reference
}

TEST(Gemma3n, ASharedLayerNeedsOneOfItsKindBeforeIt) {
  const char* sliding = "sliding_attention";
  const char* full = "full_attention";
  EXPECT_EQ(refusal({{"layer_types", {sliding, full, sliding, sliding, sliding, full}}}),
            "accepted");
  EXPECT_NE(refusal({{"layer_types", {sliding, sliding, sliding, sliding, sliding, full}}})
                .find("'num_kv_shared_layers' is 2: no earlier layer has the kind of layer 5"),
            std::string::npos);
}

TEST(Gemma3n, WhatDoesNotFitIsRefusedByName) {
  EXPECT_NE(refusal({{"intermediate_size", {96, 96, 96, 96, 96, 48}}}).find("'intermediate_size'"),
            std::string::npos);
  EXPECT_NE(refusal({{"activation_sparsity_pattern", {0.5, 0.5}}})
                .find("'activation_sparsity_pattern' has 2 values for 6 layers"),
            std::string::npos);
  EXPECT_NE(refusal({{"activation_sparsity_pattern", {0, 0, 0, 0, 0, 1}}})
                .find("'activation_sparsity_pattern"),
            std::string::npos);
  EXPECT_NE(refusal({{"altup_active_idx", 4}}).find("'altup_active_idx'"), std::string::npos);
  EXPECT_NE(refusal({{"num_kv_shared_layers", 7}}).find("'num_kv_shared_layers'"),
            std::string::npos);
  EXPECT_NE(refusal({{"sliding_window_pattern", 3}}).find("'sliding_window_pattern'"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::converters::gemma3n_test
