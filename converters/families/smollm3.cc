// SmolLM3: Llama whose every fourth layer has no RoPE, as no_rope_layers says.
// Source: transformers, models/smollm3/modeling_smollm3.py.

#include "converters/decoder.h"
#include "converters/families/families.h"
#include "converters/standard_keys.h"

namespace ferry::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {standard_matrix_rules("model."),
       standard_norm_rules("model."),
       bias_rules("model.", config.attention_bias, config.attention_bias, config.mlp_bias),
       {head_rule()}});
}

Result<Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(
      config, options, {.qkv_bias = config.attention_bias, .output_bias = config.attention_bias});
}

}  // namespace

const FamilySpec kSmollm3 = {.model_types = {"smollm3"},
                             .check = accept_any,
                             .rules = rules,
                             .ties = standard_ties,
                             .build = build};

}  // namespace ferry::families
