// The keys of Gemma 4's text decoder.
#include "converters/blocks/gemma4.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

std::vector<KeyRule> routed_rules(const std::string& prefix) {
  const std::string experts = prefix + "layers.{i}.experts.";
  return concat(
      {rename_rules(
           prefix,
           {{"layers.{i}.router.proj.weight", "layers.{i}.feed_forward.gate.weight"},
            {"layers.{i}.router.scale", "layers.{i}.feed_forward.gate.scale"},
            {"layers.{i}.router.per_expert_scale", "layers.{i}.feed_forward.gate.expert_scale"},
            {"layers.{i}.post_feedforward_layernorm_1.weight", "layers.{i}.post_mlp_norm.weight"},
            {"layers.{i}.pre_feedforward_layernorm_2.weight", "layers.{i}.experts_norm.weight"},
            {"layers.{i}.post_feedforward_layernorm_2.weight",
             "layers.{i}.post_experts_norm.weight"}}),
       fused_expert_rules(experts + "gate_up_proj", experts + "down_proj"),
       stacked_expert_rules(experts + "{e}.", "gate_proj.weight", "up_proj.weight",
                            "down_proj.weight")});
}

}  // namespace

std::vector<KeyRule> gemma4_layer_rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {rename_rules(
           prefix,
           {{"embed_tokens.weight", "tok_embeddings.weight"},
            {"norm.weight", "norm.weight"},
            {"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
            {"layers.{i}.mlp.gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
            {"layers.{i}.mlp.up_proj.weight", "layers.{i}.feed_forward.w3.weight"},
            {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"},
            {"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
            {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
            {"layers.{i}.pre_feedforward_layernorm.weight", "layers.{i}.ffn_norm.weight"},
            {"layers.{i}.post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"},
            {"layers.{i}.layer_scalar", "layers.{i}.output_scale"}}),
       parameter_rules(prefix, config.attention_bias,
                       {{"layers.{i}.self_attn.q_proj", "layers.{i}.attention.wq"},
                        {"layers.{i}.self_attn.o_proj", "layers.{i}.attention.wo"}}),
       shared_layer_rules(config, prefix)});
}

std::vector<KeyRule> gemma4_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = gemma4_layer_rules(config, prefix);
  if (config.number(kLayerInputSize) > 0) rules = concat({rules, layer_input_rules(prefix)});
  return config.moe.experts > 0 ? concat({rules, routed_rules(prefix)}) : rules;
}

}  // namespace ferry::converters
