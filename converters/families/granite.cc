// Granite 3 (dense): Llama with multipliers of embeddings, attention scores, residuals and logits.
// Source: transformers, models/granite/modeling_granite.py.

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

const FamilySpec kGranite = {.model_types = {"granite"},
                             .check = accept_any,
                             .rules = rules,
                             .ties = standard_ties,
                             .build = build};

}  // namespace ferry::families
