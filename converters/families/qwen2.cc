// Qwen2 and Qwen2.5: q, k and v always have biases, o never. Layers from max_window_layers on have
// a sliding window where use_sliding_window is set. Source: transformers,
// models/qwen2/modeling_qwen2.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen2 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 bias_rules(prefix, /*qkv=*/true, /*output=*/false, /*mlp=*/false),
                 packed_export_rules(prefix, /*qkv_bias=*/true, /*mlp_bias=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = true});
}

constexpr KerasRow kKerasBiases[] = {
    {"_self_attention_layer/_query_dense/vars/1", "self_attn.q_proj.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/_key_dense/vars/1", "self_attn.k_proj.bias", KerasOp::kFlatten, "Kd"},
    {"_self_attention_layer/_value_dense/vars/1", "self_attn.v_proj.bias", KerasOp::kFlatten, "Kd"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen2",
               .defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
                               "intermediate_size": 22016, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 32,
                               "max_position_embeddings": 32768, "sliding_window": 4096,
                               "max_window_layers": 28})",
               .window = WindowRule::kFromLayer,
               .lists_layers = true,
               .qkv_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Qwen2", score_head}},
    .gguf = {{.name = "qwen2",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = standard_keys()}},
    .keras = {{.classes = {"QwenBackbone"},
               .decoder = "qwen_transformer_decoder",
               .final_norm = "qwen_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms}, {kKerasAttention}, {kKerasMlp}, {kKerasBiases}}}},
    .meta = MetaParams{.qkv_bias = true}};

}  // namespace ferry::converters::families::qwen2
