// The keys of Gemma 3n's text decoder.
#include <fmt/format.h>

#include "converters/blocks/gemma3n.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

constexpr const char* kShared = "the layer attends to keys and values of an earlier one";

// Rules for the projections into and out of the streams behind the first one; `{i}` counts the
// streams.
std::vector<KeyRule> stream_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules =
      rename_rules(prefix, {{"altup_projections.{i}.weight", "altup.in.{i}.weight"},
                            {"altup_unembed_projections.{i}.weight", "altup.out.{i}.weight"}});
  for (KeyRule& rule : rules) rule.layers = altup_streams(config) - 1;
  return rules;
}

// Rules for keys and values of the layers that have their own. Those that a checkpoint holds for
// other layers are dropped.
std::vector<KeyRule> key_value_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = rename_rules(
      prefix, {{"layers.{i}.self_attn.k_proj.weight", "layers.{i}.attention.wk.weight"},
               {"layers.{i}.self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
               {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}});
  if (config.attention_bias) {
    rules = concat(
        {rules,
         rename_rules(prefix,
                      {{"layers.{i}.self_attn.k_proj.bias", "layers.{i}.attention.wk.bias"},
                       {"layers.{i}.self_attn.v_proj.bias", "layers.{i}.attention.wv.bias"}})});
  }
  const int64_t first = first_shared_layer(config);
  for (KeyRule& rule : rules) rule.layers = first;
  for (int64_t layer = first; layer < config.num_layers; ++layer) {
    for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"}) {
      rules.push_back(
          drop_rule(fmt::format("{}layers.{}.self_attn.{}.*", prefix, layer, name), kShared));
    }
  }
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
       {"embed_tokens_per_layer.weight", "layer_inputs.embeddings.weight"},
       {"per_layer_model_projection.weight", "layer_inputs.projection.weight"},
       {"per_layer_projection_norm.weight", "layer_inputs.norm.weight"},
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
       {"layers.{i}.altup.correction_coefs.weight", "layers.{i}.altup.correct.weight"},
       {"layers.{i}.per_layer_input_gate.weight", "layers.{i}.layer_input.gate.weight"},
       {"layers.{i}.per_layer_projection.weight", "layers.{i}.layer_input.projection.weight"},
       {"layers.{i}.post_per_layer_input_norm.weight", "layers.{i}.layer_input.norm.weight"}});
  rules.push_back(scale_rule(config, prefix));
  if (config.attention_bias) {
    rules = concat(
        {rules,
         rename_rules(prefix,
                      {{"layers.{i}.self_attn.q_proj.bias", "layers.{i}.attention.wq.bias"},
                       {"layers.{i}.self_attn.o_proj.bias", "layers.{i}.attention.wo.bias"}})});
  }
  return concat({rules, stream_rules(config, prefix), key_value_rules(config, prefix)});
}

}  // namespace ferry::converters
