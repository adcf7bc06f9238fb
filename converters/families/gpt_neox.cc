// GPT-NeoX and Pythia: q, k and v in one tensor, head by head; attention and MLP side by side, each
// behind a layer norm, or in turn. Source: transformers, models/gpt_neox/modeling_gpt_neox.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt_neox {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kGptNeoXGguf[] = {
    {"token_embd.weight", "gpt_neox.embed_in.weight"},
    {"output.weight", "embed_out.weight"},
    {"output_norm.weight", "gpt_neox.final_layer_norm.weight"},
    {"output_norm.bias", "gpt_neox.final_layer_norm.bias"},
    {"blk.{i}.attn_norm.weight", "gpt_neox.layers.{i}.input_layernorm.weight"},
    {"blk.{i}.attn_norm.bias", "gpt_neox.layers.{i}.input_layernorm.bias"},
    {"blk.{i}.ffn_norm.weight", "gpt_neox.layers.{i}.post_attention_layernorm.weight"},
    {"blk.{i}.ffn_norm.bias", "gpt_neox.layers.{i}.post_attention_layernorm.bias"},
    {"blk.{i}.attn_qkv.weight", "gpt_neox.layers.{i}.attention.query_key_value.weight", kQkvByHead},
    {"blk.{i}.attn_qkv.bias", "gpt_neox.layers.{i}.attention.query_key_value.bias", kQkvByHead},
    {"blk.{i}.attn_output.weight", "gpt_neox.layers.{i}.attention.dense.weight"},
    {"blk.{i}.attn_output.bias", "gpt_neox.layers.{i}.attention.dense.bias"},
    {"blk.{i}.ffn_up.weight", "gpt_neox.layers.{i}.mlp.dense_h_to_4h.weight"},
    {"blk.{i}.ffn_up.bias", "gpt_neox.layers.{i}.mlp.dense_h_to_4h.bias"},
    {"blk.{i}.ffn_down.weight", "gpt_neox.layers.{i}.mlp.dense_4h_to_h.weight"},
    {"blk.{i}.ffn_down.bias", "gpt_neox.layers.{i}.mlp.dense_4h_to_h.bias"},
};

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({query_key_value_rules(prefix + "layers.{i}.", "attention.", config.attention_bias),
                 plain_mlp_rules(prefix, /*bias=*/true, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"layers.{i}.input_layernorm", "layers.{i}.attention_norm"},
                                  {"layers.{i}.post_attention_layernorm", "layers.{i}.ffn_norm"},
                                  {"final_layer_norm", "norm"}}),
                 rename_rules(prefix, {{"embed_in.weight", "tok_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias, parallel = config.number(kParallelResidual) > 0;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias, .output_bias = bias},
                               .residuals = parallel ? Residuals::kSideBySide : Residuals::kInTurn,
                               .mlp_bias = true});
}

constexpr KerasRow kKerasOutside[] = {
    {"layers/reversible_embedding/vars/0", "gpt_neox.embed_in.weight", KerasOp::kCopy, "VD"},
    {"layers/layer_normalization/vars/0", "gpt_neox.final_layer_norm.weight", KerasOp::kCopy, "D"},
    {"layers/layer_normalization/vars/1", "gpt_neox.final_layer_norm.bias", KerasOp::kCopy, "D"},
};

constexpr KerasRow kKerasInside[] = {
    {"_self_attention_layer_norm/vars/0", "input_layernorm.weight", KerasOp::kCopy, "D"},
    {"_self_attention_layer_norm/vars/1", "input_layernorm.bias", KerasOp::kCopy, "D"},
    {"_self_attention_layer/_qkv_dense/vars/0", "attention.query_key_value.weight",
     KerasOp::kMergeLastTranspose, "DHt"},
    {"_self_attention_layer/_qkv_dense/vars/1", "attention.query_key_value.bias", KerasOp::kFlatten,
     "Ht"},
    {"_self_attention_layer/_output_dense/vars/0", "attention.dense.weight", KerasOp::kTranspose,
     "DD"},
    {"_self_attention_layer/_output_dense/vars/1", "attention.dense.bias", KerasOp::kCopy, "D"},
    {"_feedforward_layer_norm/vars/0", "post_attention_layernorm.weight", KerasOp::kCopy, "D"},
    {"_feedforward_layer_norm/vars/1", "post_attention_layernorm.bias", KerasOp::kCopy, "D"},
    {"_feedforward_intermediate_dense/vars/0", "mlp.dense_h_to_4h.weight", KerasOp::kTranspose,
     "DM"},
    {"_feedforward_intermediate_dense/vars/1", "mlp.dense_h_to_4h.bias", KerasOp::kCopy, "M"},
    {"_feedforward_output_dense/vars/0", "mlp.dense_4h_to_h.weight", KerasOp::kTranspose, "MD"},
    {"_feedforward_output_dense/vars/1", "mlp.dense_4h_to_h.bias", KerasOp::kCopy, "D"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gpt_neox",
               .defaults = R"({"vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44,
                               "num_attention_heads": 64, "intermediate_size": 24576,
                               "hidden_act": "gelu", "max_position_embeddings": 2048,
                               "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
                               "attention_bias": true})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}},
                         {"rope_theta", {"rotary_emb_base"}},
                         {"partial_rotary_factor", {"rotary_pct"}},
                         {"num_key_value_heads", {}}},
               .flags = {{"use_parallel_residual", kParallelResidual, true}},
               .partial_rope = true,
               .attention_bias = true,
               .read = check_whole_heads}},
    .components = {{.prefixes = {"gpt_neox."},
                    .heads = {"embed_out.weight", "lm_head.weight"},
                    .rules = rules,
                    .build = build}},
    .classifiers = {{"GPTNeoX", early_score_head}},
    .gguf = {{.name = "gptneox",
              .tables = {kGptNeoXGguf},
              .partial_rotary = true,
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kParallel,
              .keys = {kContext, kEmbedding, kBlocks, kFeedForward, kRopeDimension, kHeads,
                       kParallelBlocks, kLayerNormEpsilon, kQuantizedFileType, kOtherRopeBase},
              .activation = Activation::kGeluTanh,
              .own_head = true,
              .rough_gelu = true,
              .needed = {"blk.{i}.attn_qkv.bias"},
              .equal_heads = true}},
    .keras = {{.classes = {"GPTNeoXBackbone"},
               .decoder = "gpt_neo_x_decoder",
               .layers = "gpt_neox.layers.",
               .outside = kKerasOutside,
               .inside = {{kKerasInside}}}}};

}  // namespace ferry::converters::families::gpt_neox
