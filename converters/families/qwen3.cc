// Qwen3 (dense): RMSNorm over head_dim of q and k before RoPE, optional attention biases.
// Source: transformers, models/qwen3/modeling_qwen3.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {standard_matrix_rules("model."),
       standard_norm_rules("model."),
       rename_rules("model.",
                    {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}}),
       bias_rules("model.", config.attention_bias, config.attention_bias, /*mlp=*/false),
       packed_export_rules("model.", config.attention_bias, /*mlp_bias=*/false),
       {head_rule()}});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kHead});
}

}  // namespace

const FamilySpec kQwen3 = {
    .model_types = {"qwen3"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
