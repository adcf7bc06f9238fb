// GLM-4 (9B chat) and GLM-Edge: gate and up in one tensor, neighbouring dimensions of half of each
// head turned, biases of q, k and v.
// Source: transformers, models/glm/modeling_glm.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  const std::string layer = "model.layers.{i}.";
  std::vector<KeyRule> rules = concat(
      {paired_rope_rules(layer + "self_attn", config.attention_bias),
       packed_gate_up_rules(layer + "mlp.gate_up_proj", /*bias=*/false,
                            PackedLayout::kConcatenated),
       rename_rules("model.",
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
                     {"layers.{i}.self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
                     {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"}}),
       standard_norm_rules("model."),
       {head_rule(),
        drop_rule("model.layers.{i}.self_attn.rotary_emb.inv_freq", "derived from the config")}});
  if (!config.attention_bias) return rules;
  return concat({rules, rename_rules("model.", {{"layers.{i}.self_attn.v_proj.bias",
                                                 "layers.{i}.attention.wv.bias"}})});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = config.attention_bias});
}

}  // namespace

const FamilySpec kGlm = {
    .model_types = {"glm"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
