// Configs for the tests of keys that transformers reads.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "converters/config/model_config.h"

namespace ferry::converters::reference_config_test {

using nlohmann::json;

// The sizes differ from all defaults. Heads have 16 dimensions.
inline json sizes(const std::string& type) {
  if (type == "codegen") {
    return {{"model_type", type}, {"vocab_size", 50},   {"n_embd", 64},   {"n_layer", 4},
            {"n_head", 4},        {"n_positions", 512}, {"rotary_dim", 8}};
  }
  return {{"model_type", type},       {"vocab_size", 50},       {"hidden_size", 64},
          {"intermediate_size", 96},  {"num_hidden_layers", 4}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 16},         {"max_position_embeddings", 512}};
}

inline json with(json config, const json& more) {
  config.update(more);
  return config;
}

inline ModelConfig parse(const json& config, ConfigReport* report = nullptr) {
  const auto result = parse_model_config(config.dump(), "", "config.json", report);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : ModelConfig{};
}

// Returns "4 config.json: ..." or "accepted".
inline std::string refusal(const json& config) {
  const auto result = parse_model_config(config.dump(), "", "config.json");
  if (result) return "accepted";
  return std::to_string(static_cast<int>(result.error().code)) + " " + result.error().message;
}

inline json multimodal(const std::string& type, const json& text) {
  return {{"model_type", type}, {"text_config", text}};
}

inline json with_rope(const std::string& type, const json& inside,
                      const json& outside = json::object()) {
  return with(with(sizes(type), {{"rope_parameters", inside}}), outside);
}

}  // namespace ferry::converters::reference_config_test
