// OPT and Galactica: learned positions behind two unused rows; layer norms before both blocks of a
// layer, or behind them with narrow embeddings (350M). Source: transformers, models/opt.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::opt {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({attention_rules(prefix, config.attention_bias, "out_proj"),
                 plain_mlp_rules(prefix, config.attention_bias, "fc1", "fc2"),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"layers.{i}.self_attn_layer_norm", "layers.{i}.attention_norm"},
                                  {"layers.{i}.final_layer_norm", "layers.{i}.ffn_norm"},
                                  {"final_layer_norm", "norm"}}),
                 rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"},
                                       {"project_in.weight", "project_in.weight"},
                                       {"project_out.weight", "project_out.weight"}}),
                 {position_rule(prefix + "embed_positions.weight", /*skipped=*/2)}});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias, before = config.number("do_layer_norm_before") > 0;
  const bool bare = config.number("layer_norm_elementwise_affine") == 0;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias},
       .norm = bare ? NormKind::kLayerBare : NormKind::kLayer,
       .residuals = before ? Residuals::kInTurn : Residuals::kNormAfter,
       .mlp_bias = bias,
       .final_norm = before && config.number("_remove_final_layer_norm") == 0,
       .learned_positions = true,
       .embedding_size = config.number("word_embed_proj_dim")});
}

constexpr KerasRow kKerasOutside[] = {
    {"layers/token_and_position_embedding/token_embedding/vars/0",
     "model.decoder.embed_tokens.weight", KerasOp::kCopy, "VD"},
    {"layers/token_and_position_embedding/position_embedding/vars/0",
     "model.decoder.embed_positions.weight", KerasOp::kAfterTwoRows, "PD"},
    {"layers/layer_normalization/vars/0", "model.decoder.final_layer_norm.weight", KerasOp::kCopy,
     "D"},
    {"layers/layer_normalization/vars/1", "model.decoder.final_layer_norm.bias", KerasOp::kCopy,
     "D"},
};

constexpr KerasRow kKerasInside[] = {
    {"_self_attention_layer_norm/vars/0", "self_attn_layer_norm.weight", KerasOp::kCopy, "D"},
    {"_self_attention_layer_norm/vars/1", "self_attn_layer_norm.bias", KerasOp::kCopy, "D"},
    {"_self_attention_layer/query_dense/vars/0", "self_attn.q_proj.weight",
     KerasOp::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/query_dense/vars/1", "self_attn.q_proj.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/key_dense/vars/0", "self_attn.k_proj.weight",
     KerasOp::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/key_dense/vars/1", "self_attn.k_proj.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/value_dense/vars/0", "self_attn.v_proj.weight",
     KerasOp::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/value_dense/vars/1", "self_attn.v_proj.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/output_dense/vars/0", "self_attn.out_proj.weight",
     KerasOp::kMergeFirstTranspose, "HdD"},
    {"_self_attention_layer/output_dense/vars/1", "self_attn.out_proj.bias", KerasOp::kCopy, "D"},
    {"_feedforward_layer_norm/vars/0", "final_layer_norm.weight", KerasOp::kCopy, "D"},
    {"_feedforward_layer_norm/vars/1", "final_layer_norm.bias", KerasOp::kCopy, "D"},
    {"_feedforward_intermediate_dense/vars/0", "fc1.weight", KerasOp::kTranspose, "DM"},
    {"_feedforward_intermediate_dense/vars/1", "fc1.bias", KerasOp::kCopy, "M"},
    {"_feedforward_output_dense/vars/0", "fc2.weight", KerasOp::kTranspose, "MD"},
    {"_feedforward_output_dense/vars/1", "fc2.bias", KerasOp::kCopy, "D"},
};

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "opt",
          .defaults =
              R"({"pad_token_id": 1, "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12,
                               "intermediate_size": 3072, "max_position_embeddings": 2048,
                               "num_attention_heads": 12, "activation_function": "relu",
                               "rms_norm_eps": 1e-5, "attention_bias": true,
                               "tie_word_embeddings": true})",
          .names = {{"intermediate_size", {"ffn_dim"}}, {"attention_bias", {"enable_bias"}}},
          .unread = {"rms_norm_eps", "num_key_value_heads", "head_dim"},
          .flags = {{.key = "do_layer_norm_before", .otherwise = true},
                    {.key = "_remove_final_layer_norm"},
                    {.key = "layer_norm_elementwise_affine", .otherwise = true}},
          .sizes = {"word_embed_proj_dim"},
          .activation_key = "activation_function",
          .rope = RopeRule::kNone,
          .attention_bias = true,
          .rope_layers = RopeLayers::kNone}},
    .components = {{.prefixes = {"model.decoder.", "decoder."}, .rules = rules, .build = build}},
    .classifiers = {{"OPT", early_score_head, /*texts=*/true, /*tokens=*/false}},
    .keras = {{.classes = {"OPTBackbone"},
               .decoder = "transformer_decoder",
               .layers = "model.decoder.layers.",
               .outside = kKerasOutside,
               .inside = {{kKerasInside}}}}};

}  // namespace ferry::converters::families::opt
