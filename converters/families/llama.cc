// Llama 2 and 3, and what is built like them under the same model_type (SmolLM2, TinyLlama, ...).
// Source: transformers, models/llama/modeling_llama.py.

#include "converters/decoder.h"
#include "converters/families/families.h"
#include "converters/packed_keys.h"
#include "converters/standard_keys.h"

namespace ferry::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {standard_matrix_rules("model."),
       standard_norm_rules("model."),
       bias_rules("model.", config.attention_bias, config.attention_bias, config.mlp_bias),
       packed_export_rules("model.", config.attention_bias, config.mlp_bias),
       {head_rule()}});
}

Result<Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(
      config, options, {.qkv_bias = config.attention_bias, .output_bias = config.attention_bias});
}

}  // namespace

const FamilySpec kLlama = {.model_types = {"llama"},
                           .check = accept_any,
                           .rules = rules,
                           .ties = standard_ties,
                           .build = build};

}  // namespace ferry::families
