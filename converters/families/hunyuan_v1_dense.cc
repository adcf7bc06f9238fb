// Hunyuan (dense, 0.5B to 7B): Llama with RMSNorm over head_dim of q and k, after RoPE, whose base
// an alpha may change. Source: transformers,
// models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::hunyuan_v1_dense {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kHunyuanGguf[] = {
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.query_layernorm.weight"},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.key_layernorm.weight"},
};

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string attention = prefix + "layers.{i}.self_attn.";
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       rename_rules(attention, {{"query_layernorm.weight", "layers.{i}.attention.q_norm.weight"},
                                {"key_layernorm.weight", "layers.{i}.attention.k_norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kAfter});
}

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "hunyuan_v1_dense",
                                       .defaults = R"({"vocab_size": 290943, "hidden_size": 4096,
                               "intermediate_size": 11008, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "max_position_embeddings": 2048,
                               "rms_norm_eps": 1e-5})",
                                       .rope = RopeRule::kAlpha,
                                       .attention_bias = true}},
                            .components = {{.rules = rules, .build = build}},
                            .gguf = {{.name = "hunyuan-dense",
                                      .tokenizer_keys = {.hunyuan = true},
                                      .tables = {kFrame, kHunyuanGguf, kAttention, kFusedAttention,
                                                 kValueAndOutput, kPreNorm, kMlp},
                                      .keys = standard_keys({kAlphaRope}),
                                      .unread = {kOutputBias}}}};

}  // namespace ferry::converters::families::hunyuan_v1_dense
