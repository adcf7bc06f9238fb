#include "converters/blocks/gemma.h"

#include <cmath>

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

Status read_gemma_scalars(const JsonFields&, ModelConfig& config) {
  // The multiplier is f32. The reference rounds it to the dtype that it computes in: in bf16
  // sqrt(1152) is 34 there. Our residual stream is f32 whatever the dtype of the weights.
  config.scalars.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  return {};
}

Status read_query_scalar(const JsonFields& fields, ModelConfig& config) {
  if (const auto scalar = FERRY_TRY(fields.number("query_pre_attn_scalar", kScaleRange))) {
    config.scalars.attention = 1.0 / std::sqrt(*scalar);
  }
  return {};
}

std::vector<KeyRule> gemma_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = concat(
      {standard_matrix_rules(prefix),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       shifted_norm_rules(
           prefix,
           {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
            {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
            {"layers.{i}.pre_feedforward_layernorm.weight", "layers.{i}.ffn_norm.weight"},
            {"layers.{i}.post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"},
            {"norm.weight", "norm.weight"}})});
  if (config.number(kGemmaQkNorm) == 0) return rules;
  return concat(
      {rules, shifted_norm_rules(
                  prefix,
                  {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                   {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}})});
}

Result<Methods> build_gemma(const ModelConfig& config, const BuildOptions& options) {
  using enum AttentionStyle::QkNorm;
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = config.number(kGemmaQkNorm) > 0 ? kHead : kNone},
                                 {.before = true, .after = true});
}

}  // namespace ferry::converters
