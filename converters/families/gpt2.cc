// GPT-2: learned positions instead of RoPE, layer norms, an MLP without a gate. Matrices are those
// of Conv1D, (in, out); q, k and v are the columns of one. Source: transformers,
// models/gpt2/modeling_gpt2.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/decoder_context.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt2 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

// Files store matrices as (out, in), checkpoints as (in, out).
constexpr GgufName kGpt2Gguf[] = {
    {"blk.{i}.attn_qkv.weight", "transformer.h.{i}.attn.c_attn.weight.T"},
    {"blk.{i}.attn_output.weight", "transformer.h.{i}.attn.c_proj.weight.T"},
    {"blk.{i}.ffn_up.weight", "transformer.h.{i}.mlp.c_fc.weight.T"},
    {"blk.{i}.ffn_down.weight", "transformer.h.{i}.mlp.c_proj.weight.T"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.flag_or("add_cross_attention", false))) {
    return fields.error(ErrorCode::kUnsupported, "add_cross_attention", "is true: not supported");
  }
  if (!FERRY_TRY(fields.flag_or("scale_attn_weights", true))) config.scalars.attention = 1.0;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "h.{i}.";
  return concat({gpt_rules(prefix), conv1d_rules(layer, config),
                 parameter_rules(layer, /*bias=*/true, {{"ln_2", "layers.{i}.ffn_norm"}}),
                 rename_rules(prefix, {{"wpe.weight", "position_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = true, .output_bias = true},
                               .mlp_bias = true,
                               .learned_positions = true});
}

constexpr KerasRow kKerasOutside[] = {
    {"layers/reversible_embedding/vars/0", "transformer.wte.weight", KerasOp::kCopy, "VD"},
    {"layers/position_embedding/vars/0", "transformer.wpe.weight", KerasOp::kCopy, "PD"},
    {"layers/layer_normalization/vars/0", "transformer.ln_f.weight", KerasOp::kCopy, "D"},
    {"layers/layer_normalization/vars/1", "transformer.ln_f.bias", KerasOp::kCopy, "D"},
};

// A matrix whose key ends with .T is that of Conv1D transposed: q, k and v are rows of it.
constexpr KerasRow kKerasInside[] = {
    {"_self_attention_layer_norm/vars/0", "ln_1.weight", KerasOp::kCopy, "D"},
    {"_self_attention_layer_norm/vars/1", "ln_1.bias", KerasOp::kCopy, "D"},
    {"_self_attention_layer/query_dense/vars/0", "attn.c_attn.weight.T",
     KerasOp::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/key_dense/vars/0", "attn.c_attn.weight.T", KerasOp::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/value_dense/vars/0", "attn.c_attn.weight.T",
     KerasOp::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/query_dense/vars/1", "attn.c_attn.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/key_dense/vars/1", "attn.c_attn.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/value_dense/vars/1", "attn.c_attn.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/output_dense/vars/0", "attn.c_proj.weight", KerasOp::kMergeFirst,
     "HdD"},
    {"_self_attention_layer/output_dense/vars/1", "attn.c_proj.bias", KerasOp::kCopy, "D"},
    {"_feedforward_layer_norm/vars/0", "ln_2.weight", KerasOp::kCopy, "D"},
    {"_feedforward_layer_norm/vars/1", "ln_2.bias", KerasOp::kCopy, "D"},
    {"_feedforward_intermediate_dense/vars/0", "mlp.c_fc.weight", KerasOp::kCopy, "DM"},
    {"_feedforward_intermediate_dense/vars/1", "mlp.c_fc.bias", KerasOp::kCopy, "M"},
    {"_feedforward_output_dense/vars/0", "mlp.c_proj.weight", KerasOp::kCopy, "MD"},
    {"_feedforward_output_dense/vars/1", "mlp.c_proj.bias", KerasOp::kCopy, "D"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gpt2",
               .defaults = R"({"vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12,
                               "num_attention_heads": 12, "max_position_embeddings": 1024,
                               "rms_norm_eps": 1e-5, "activation_function": "gelu_new",
                               "tie_word_embeddings": true})",
               .names = gpt_names(),
               .flags = {{kScoresByLayer}},
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"GPT2", early_score_head}},
    .gguf = {{.name = "gpt2",
              .tables = {kGpt2, kGpt2Gguf},
              .layer_norm = true,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kLayerNormEpsilon,
                       kFileType},
              .activation = Activation::kGeluTanh,
              .turns_nothing = true,
              .equal_heads = true}},
    .keras = {{.classes = {"GPT2Backbone"},
               .decoder = "transformer_decoder",
               .layers = "transformer.h.",
               .outside = kKerasOutside,
               .inside = {{kKerasInside}}}}};

}  // namespace ferry::converters::families::gpt2
