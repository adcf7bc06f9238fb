#include "converters/blocks/hybrid.h"

#include "converters/blocks/decoder.h"
#include "converters/blocks/delta_net.h"
#include "converters/blocks/moe.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> hybrid_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = concat(
      {standard_matrix_rules(prefix),
       expert_rules(prefix, config),
       shifted_norm_rules(
           prefix, {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                    {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                    {"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                    {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                    {"norm.weight", "norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       rename_rules(
           prefix,
           {{"layers.{i}.linear_attn.conv1d.weight", "layers.{i}.attention.conv1d.weight"},
            {"layers.{i}.linear_attn.dt_bias", "layers.{i}.attention.dt_bias"},
            {"layers.{i}.linear_attn.norm.weight", "layers.{i}.attention.norm.weight"},
            {"layers.{i}.linear_attn.out_proj.weight", "layers.{i}.attention.out_proj.weight"},
            {"layers.{i}.linear_attn.A_log", "layers.{i}.attention.A"}}),
       {drop_rule(prefix + "layers.{i}.linear_attn.conv1d.bias",
                  "the convolution has no bias; some exports carry an unused one")}});
  for (KeyRule& rule : rules) {
    if (rule.source.ends_with(".A_log")) {
      rule.name = "-exp(A_log)";
      rule.steps = {{.kind = graph::Step::Kind::kNegExp}};
    }
  }
  return rules;
}

std::vector<KeyRule> separate_hybrid_rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {hybrid_rules(config, prefix),
       rename_rules(
           prefix,
           {{"layers.{i}.linear_attn.in_proj_qkv.weight",
             "layers.{i}.attention.in_proj_qkv.weight"},
            {"layers.{i}.linear_attn.in_proj_z.weight", "layers.{i}.attention.in_proj_z.weight"},
            {"layers.{i}.linear_attn.in_proj_b.weight", "layers.{i}.attention.in_proj_b.weight"},
            {"layers.{i}.linear_attn.in_proj_a.weight", "layers.{i}.attention.in_proj_a.weight"}}),
       packed_delta_net_rules(prefix, std::nullopt)});
}

Result<Methods> build_hybrid(const ModelConfig& config, const BuildOptions& options) {
  return build_mixed_decoder(config, options,
                             {.qkv_bias = config.attention_bias,
                              .output_bias = config.attention_bias,
                              .qk_norm = AttentionStyle::QkNorm::kHead,
                              .output_gate = true},
                             gated_delta_net);
}

}  // namespace ferry::converters
