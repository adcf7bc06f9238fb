// Qwen3 (dense): RMSNorm over head_dim of q and k before RoPE, optional attention biases.
// Source: transformers, models/qwen3/modeling_qwen3.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen3 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       rename_rules(prefix,
                    {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       packed_export_rules(prefix, config.attention_bias, /*mlp_bias=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kHead});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen3",
               .defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
                               "intermediate_size": 22016, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 32,
                               "head_dim": 128, "max_position_embeddings": 32768,
                               "sliding_window": 4096, "max_window_layers": 28})",
               .window = WindowRule::kFromLayer,
               .lists_layers = true,
               .attention_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Qwen3", score_head}},
    .gguf = {{.name = "qwen3",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = standard_keys(),
              .unread = {kOutputBias}}},
    .keras = {{.classes = {"Qwen3Backbone"},
               .decoder = "qwen3_transformer_decoder",
               .final_norm = "qwen3_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms}, {kKerasAttention}, {kKerasMlp}, {kKerasQwen3Norms}}}},
    .meta = MetaParams{.qk_norm = true}};

}  // namespace ferry::converters::families::qwen3
