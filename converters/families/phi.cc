// Phi-1, Phi-1.5 and Phi-2: attention and MLP read the same layer norm and are added side by side;
// RoPE rotates a part of each head; every projection and the head have biases.
// Source: transformers, models/phi/modeling_phi.py.

#include "converters/blocks/styled_decoder.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::phi {
namespace {

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
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::phi
