// LFM2: gated short convolutions, and attention with normed q and k in some layers.
// Source: transformers, models/lfm2/modeling_lfm2.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/short_conv.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> rules = concat(
      {rename_rules(
           "model.",
           {{"embed_tokens.weight", "tok_embeddings.weight"},
            {"embedding_norm.weight", "norm.weight"},
            {"layers.{i}.operator_norm.weight", "layers.{i}.attention_norm.weight"},
            {"layers.{i}.ffn_norm.weight", "layers.{i}.ffn_norm.weight"},
            {"layers.{i}.feed_forward.w1.weight", "layers.{i}.feed_forward.w1.weight"},
            {"layers.{i}.feed_forward.w2.weight", "layers.{i}.feed_forward.w2.weight"},
            {"layers.{i}.feed_forward.w3.weight", "layers.{i}.feed_forward.w3.weight"},
            {"layers.{i}.self_attn.q_proj.weight", "layers.{i}.attention.wq.weight"},
            {"layers.{i}.self_attn.k_proj.weight", "layers.{i}.attention.wk.weight"},
            {"layers.{i}.self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
            {"layers.{i}.self_attn.out_proj.weight", "layers.{i}.attention.wo.weight"},
            {"layers.{i}.self_attn.q_layernorm.weight", "layers.{i}.attention.q_norm.weight"},
            {"layers.{i}.self_attn.k_layernorm.weight", "layers.{i}.attention.k_norm.weight"},
            {"layers.{i}.conv.in_proj.weight", "layers.{i}.attention.in_proj.weight"},
            {"layers.{i}.conv.conv.weight", "layers.{i}.attention.conv1d.weight"},
            {"layers.{i}.conv.out_proj.weight", "layers.{i}.attention.out_proj.weight"}}),
       {head_rule()}});
  if (!config.short_conv.bias) return rules;
  return concat(
      {rules,
       rename_rules("model.",
                    {{"layers.{i}.conv.in_proj.bias", "layers.{i}.attention.in_proj.bias"},
                     {"layers.{i}.conv.conv.bias", "layers.{i}.attention.conv1d.bias"},
                     {"layers.{i}.conv.out_proj.bias", "layers.{i}.attention.out_proj.bias"}})});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(
      config, options,
      [&](graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x, int64_t layer) {
        return config.layer_types[static_cast<size_t>(layer)] == LayerType::kShortConv
                   ? short_conv(b, c, x, layer)
                   : attention(b, c, x, layer, {.qk_norm = AttentionStyle::QkNorm::kHead});
      });
}

}  // namespace

const FamilySpec kLfm2 = {
    .model_types = {"lfm2"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
