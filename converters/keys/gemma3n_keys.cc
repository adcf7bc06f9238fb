// The keys of Gemma 3n's text decoder.
#include "converters/blocks/gemma3n.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// Rules for the projections into and out of the streams behind the first one; `{i}` counts the
// streams.
std::vector<KeyRule> stream_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules =
      rename_rules(prefix, {{"altup_projections.{i}.weight", "altup.in.{i}.weight"},
                            {"altup_unembed_projections.{i}.weight", "altup.out.{i}.weight"}});
  for (KeyRule& rule : rules) rule.layers = altup_streams(config) - 1;
  return rules;
}

// Rule for the scale of the stream that the layer's own embeddings are multiplied with. It is
// dropped where the model does not use it.
KeyRule scale_rule(const ModelConfig& config, const std::string& prefix) {
  const std::string key = prefix + "layers.{i}.altup.correct_output_scale";
  if (config.number("altup_correct_scale") == 0) {
    return drop_rule(key, "altup_correct_scale is false");
  }
  return rename_rules("", {{key.c_str(), "layers.{i}.altup.scale"}}).front();
}

}  // namespace

std::vector<KeyRule> gemma3n_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = rename_rules(
      prefix,
      {{"embed_tokens.weight", "tok_embeddings.weight"},
       {"norm.weight", "norm.weight"},
       {"layers.{i}.self_attn.q_proj.weight", "layers.{i}.attention.wq.weight"},
       {"layers.{i}.self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
       {"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
       {"layers.{i}.mlp.gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
       {"layers.{i}.mlp.up_proj.weight", "layers.{i}.feed_forward.w3.weight"},
       {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"},
       {"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
       {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
       {"layers.{i}.pre_feedforward_layernorm.weight", "layers.{i}.ffn_norm.weight"},
       {"layers.{i}.post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"},
       {"layers.{i}.laurel.linear_left.weight", "layers.{i}.laurel.left.weight"},
       {"layers.{i}.laurel.linear_right.weight", "layers.{i}.laurel.right.weight"},
       {"layers.{i}.laurel.post_laurel_norm.weight", "layers.{i}.laurel.norm.weight"},
       {"layers.{i}.altup.modality_router.weight", "layers.{i}.altup.router.weight"},
       {"layers.{i}.altup.router_norm.weight", "layers.{i}.altup.router_norm.weight"},
       {"layers.{i}.altup.prediction_coefs.weight", "layers.{i}.altup.predict.weight"},
       {"layers.{i}.altup.correction_coefs.weight", "layers.{i}.altup.correct.weight"}});
  rules.push_back(scale_rule(config, prefix));
  if (config.attention_bias) {
    rules = concat(
        {rules,
         rename_rules(prefix,
                      {{"layers.{i}.self_attn.q_proj.bias", "layers.{i}.attention.wq.bias"},
                       {"layers.{i}.self_attn.o_proj.bias", "layers.{i}.attention.wo.bias"}})});
  }
  return concat({rules, layer_input_rules(prefix), stream_rules(config, prefix),
                 shared_layer_rules(config, prefix)});
}

}  // namespace ferry::converters
