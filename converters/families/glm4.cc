// GLM-4-0414 (9B, 32B, Z1): GLM with norms before and after the two blocks of a layer.
// Source: transformers, models/glm4/modeling_glm4.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::glm4 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kGlm4NormsGguf[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_self_attn_layernorm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_mlp_layernorm.weight"},
};

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {glm::kFamily.text_decoder().rules(config, prefix),
       rename_rules(
           prefix,
           {{"layers.{i}.post_self_attn_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
            {"layers.{i}.post_mlp_layernorm.weight", "layers.{i}.post_ffn_norm.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = config.attention_bias},
                                 {.before = true, .after = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "glm4",
               .defaults = R"({"pad_token_id": 151329, "vocab_size": 151552, "hidden_size": 4096,
                               "intermediate_size": 13696, "num_hidden_layers": 40,
                               "num_attention_heads": 32, "num_key_value_heads": 2,
                               "head_dim": 128, "max_position_embeddings": 131072,
                               "rms_norm_eps": 1.5625e-7, "attention_bias": true,
                               "partial_rotary_factor": 0.5})",
               .partial_rope = true,
               .attention_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Glm4", score_head}},
    .gguf = {
        {.name = "glm4",
         .tokenizer_keys = {.glm = GgufTokenizerRules::Glm::kWithBos},
         .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kGlm4NormsGguf, kGateUp},
         .partial_rotary = true,
         .keys = standard_keys({kRopeDimension})}}};

}  // namespace ferry::converters::families::glm4
