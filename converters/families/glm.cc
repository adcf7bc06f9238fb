// GLM-4 (9B chat) and GLM-Edge: gate and up in one tensor, RoPE over neighbouring dimensions of
// half of each head, biases of q, k and v. Source: transformers, models/glm/modeling_glm.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::glm {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  std::vector<KeyRule> rules = concat(
      {paired_rope_rules(layer + "self_attn", config.attention_bias),
       packed_gate_up_rules(layer + "mlp.gate_up_proj", /*bias=*/false,
                            PackedLayout::kConcatenated),
       rename_rules(prefix,
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
                     {"layers.{i}.self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
                     {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"}}),
       standard_norm_rules(prefix),
       {drop_rule(layer + "self_attn.rotary_emb.inv_freq", "derived from the config")}});
  if (!config.attention_bias) return rules;
  return concat({rules, rename_rules(prefix, {{"layers.{i}.self_attn.v_proj.bias",
                                               "layers.{i}.attention.wv.bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = config.attention_bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "glm",
               .defaults = R"({"pad_token_id": 151329, "vocab_size": 151552, "hidden_size": 4096,
                               "intermediate_size": 13696, "num_hidden_layers": 40,
                               "num_attention_heads": 32, "num_key_value_heads": 2,
                               "head_dim": 128, "max_position_embeddings": 131072,
                               "rms_norm_eps": 1.5625e-7, "attention_bias": true,
                               "partial_rotary_factor": 0.5})",
               .partial_rope = true,
               .attention_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Glm", score_head}},
    .gguf = {{.name = "chatglm",
              .tokenizer_keys = {.glm = GgufTokenizerRules::Glm::kOld},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kGateUp},
              .partial_rotary = true,
              .keys = {kContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads, kRmsEpsilon,
                       kOtherHeadLengths, kFileType, kRopeDimension, kNoBos, kRopeBase},
              .equal_heads = true}}};

}  // namespace ferry::converters::families::glm
