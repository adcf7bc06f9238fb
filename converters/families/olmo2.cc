// OLMo 2: norms stand after the two blocks of a layer and not before them; q and k are normalised
// over all heads together.
// Source: transformers, models/olmo2/modeling_olmo2.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {standard_matrix_rules("model."),
       rename_rules(
           "model.",
           {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
            {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
            {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
            {"layers.{i}.post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"},
            {"norm.weight", "norm.weight"}}),
       bias_rules("model.", config.attention_bias, config.attention_bias, /*mlp=*/false),
       {head_rule()}});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kWhole},
                                 {.before = false, .after = true});
}

}  // namespace

const FamilySpec kOlmo2 = {
    .model_types = {"olmo2"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
