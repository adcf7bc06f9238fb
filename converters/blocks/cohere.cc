#include "converters/blocks/cohere.h"

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

Status read_cohere(const JsonFields& fields, ModelConfig& config) {
  const auto scale = FERRY_TRY(fields.number("logit_scale", kScaleRange));
  if (!scale) return fields.bad("logit_scale", "is null");
  config.scalars.logits = *scale;
  return {};
}

std::vector<KeyRule> cohere_rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  const std::string attention = prefix + "layers.{i}.self_attn.";
  std::vector<KeyRule> rules = concat(
      {paired_rope_rules(prefix + "layers.{i}.self_attn", bias),
       parameter_rules(
           attention, bias,
           {{"v_proj", "layers.{i}.attention.wv"}, {"o_proj", "layers.{i}.attention.wo"}}),
       rename_rules(prefix,
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                     {"layers.{i}.mlp.gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
                     {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"},
                     {"layers.{i}.mlp.up_proj.weight", "layers.{i}.feed_forward.w3.weight"},
                     {"norm.weight", "norm.weight"}}),
       {drop_rule(attention + "rotary_emb.inv_freq", "derived from the config")}});
  if (config.number(kCohereQkNorm) == 0) return rules;
  return concat({rules, paired_head_norm_rules(attention, config)});
}

Result<Methods> build_cohere(const ModelConfig& config, const BuildOptions& options) {
  using enum AttentionStyle::QkNorm;
  const bool bias = config.attention_bias;
  const auto qk_norm = config.number(kCohereQkNorm) > 0 ? kLayerByHead : kNone;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias, .qk_norm = qk_norm},
       .norm = NormKind::kLayerNoBias,
       .residuals = Residuals::kOneNorm,
       .gated = true});
}

}  // namespace ferry::converters
