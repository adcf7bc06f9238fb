// Phi-1, Phi-1.5 and Phi-2: attention and MLP read the same layer norm and are added side by side;
// RoPE rotates a part of each head; every projection and the head have biases.
// Source: transformers, models/phi/modeling_phi.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::phi {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufForm kSingleQkv = {.read_only = true, .shape = GgufForm::Shape::kQkv};

constexpr GgufName kPhi2Gguf[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.final_layernorm.weight"},
    {"output_norm.bias", "model.final_layernorm.bias"},
    {"output.weight", "lm_head.weight"},
    {"output.bias", "lm_head.bias"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight"},
    {"blk.{i}.attn_norm.bias", "model.layers.{i}.input_layernorm.bias"},
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"},
    {"blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias"},
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"},
    {"blk.{i}.attn_v.bias", "model.layers.{i}.self_attn.v_proj.bias"},
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.self_attn.{p}_proj.weight", kSingleQkv},
    {"blk.{i}.attn_qkv.bias", "model.layers.{i}.self_attn.{p}_proj.bias", kSingleQkv},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.dense.weight"},
    {"blk.{i}.attn_output.bias", "model.layers.{i}.self_attn.dense.bias"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.fc1.weight"},
    {"blk.{i}.ffn_up.bias", "model.layers.{i}.mlp.fc1.bias"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.fc2.weight"},
    {"blk.{i}.ffn_down.bias", "model.layers.{i}.mlp.fc2.bias"},
};

constexpr const char* kQkNorm = "qk_norm";

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat(
      {attention_rules(prefix, /*bias=*/true, "dense"),
       plain_mlp_rules(prefix, /*bias=*/true, "mlp.fc1", "mlp.fc2"),
       parameter_rules(prefix, /*bias=*/true,
                       {{"layers.{i}.input_layernorm", "layers.{i}.attention_norm"},
                        {"layers.{i}.self_attn.q_layernorm", "layers.{i}.attention.q_norm"},
                        {"layers.{i}.self_attn.k_layernorm", "layers.{i}.attention.k_norm"},
                        {"final_layernorm", "norm"}}),
       rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}}),
       rename_rules("", {{"lm_head.bias", "output.bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  using enum AttentionStyle::QkNorm;
  const auto qk_norm = config.number(kQkNorm) > 0 ? kLayer : kNone;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = true, .output_bias = true, .qk_norm = qk_norm},
       .residuals = Residuals::kOneNorm,
       .mlp_bias = true,
       .head_bias = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "phi",
               .defaults = R"({"vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192,
                               "num_hidden_layers": 24, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "hidden_act": "gelu_new",
                               "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
               .flags = {{"qk_layernorm", kQkNorm}},
               .partial_rope = true,
               .qkv_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Phi", score_head}},
    .gguf = {{.name = "phi2",
              .tables = {kPhi2Gguf},
              .partial_rotary = true,
              .layer_norm = true,
              .keys = {kContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads,
                       kLayerNormEpsilon, kRopeDimension, kFileType, kNoBos, kOtherRopeBase},
              .activation = Activation::kGeluTanh,
              .own_head = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::phi
