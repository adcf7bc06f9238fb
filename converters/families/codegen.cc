// CodeGen and CodeGen2: attention and MLP side by side on one layer norm, neighbouring dimensions
// of a part of each head turned, q, k and v packed in blocks. Source: transformers,
// models/codegen/modeling_codegen.py.

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig&) {
  constexpr const char* kMask = "the causal mask is not a weight";
  return concat({rename_rules("transformer.",
                              {{"wte.weight", "tok_embeddings.weight"},
                               {"h.{i}.ln_1.weight", "layers.{i}.attention_norm.weight"},
                               {"h.{i}.ln_1.bias", "layers.{i}.attention_norm.bias"},
                               {"h.{i}.attn.out_proj.weight", "layers.{i}.attention.wo.weight"},
                               {"h.{i}.mlp.fc_in.weight", "layers.{i}.feed_forward.w1.weight"},
                               {"h.{i}.mlp.fc_in.bias", "layers.{i}.feed_forward.w1.bias"},
                               {"h.{i}.mlp.fc_out.weight", "layers.{i}.feed_forward.w2.weight"},
                               {"h.{i}.mlp.fc_out.bias", "layers.{i}.feed_forward.w2.bias"},
                               {"ln_f.weight", "norm.weight"},
                               {"ln_f.bias", "norm.bias"}}),
                 rename_rules("", {{"lm_head.bias", "output.bias"}}),
                 {codegen_qkv_rule("transformer.h.{i}.attn.qkv_proj.weight"), head_rule(),
                  drop_rule("transformer.h.{i}.attn.causal_mask", kMask),
                  drop_rule("transformer.h.{i}.attn.bias", kMask),
                  drop_rule("transformer.h.{i}.attn.masked_bias", kMask)}});
}

graph::ValueId parallel_layer(graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x,
                              int64_t layer) {
  const graph::ValueId normed =
      layer_norm(b, x, layer_name(layer, "attention_norm"), c.config.rms_norm_eps);
  const graph::ValueId attended = attention(b, c, normed, layer, {});
  const graph::ValueId mapped = plain_mlp(b, c.config, normed, layer_name(layer, "feed_forward"));
  return b.add(b.add(attended, mapped), x);
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_frame(config, options,
                     {.layer = parallel_layer,
                      .final_norm =
                          [&](graph::GraphBuilder& b, graph::ValueId x) {
                            return layer_norm(b, x, "norm", config.rms_norm_eps);
                          },
                      .head_bias = true});
}

}  // namespace

const FamilySpec kCodegen = {.model_types = {"codegen"},
                             .rules = rules,
                             .ties = standard_ties,
                             .build = build,
                             .base_prefix = "transformer."};

}  // namespace ferry::converters::families
