// Persimmon: GPT-NeoX with blocks one after the other, and norms of q and k over head_dim.
// Source: transformers, models/persimmon/modeling_persimmon.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::persimmon {
namespace {

constexpr const char* kQkNorm = "qk_norm";

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat(
      {query_key_value_rules(prefix + "layers.{i}.", "self_attn.", /*bias=*/true),
       plain_mlp_rules(prefix, /*bias=*/true, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
       parameter_rules(prefix, /*bias=*/true,
                       {{"layers.{i}.input_layernorm", "layers.{i}.attention_norm"},
                        {"layers.{i}.post_attention_layernorm", "layers.{i}.ffn_norm"},
                        {"layers.{i}.self_attn.q_layernorm", "layers.{i}.attention.q_norm"},
                        {"layers.{i}.self_attn.k_layernorm", "layers.{i}.attention.k_norm"},
                        {"final_layernorm", "norm"}}),
       rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  using enum AttentionStyle::QkNorm;
  const auto qk_norm = config.number(kQkNorm) > 0 ? kLayer : kNone;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = true, .output_bias = true, .qk_norm = qk_norm}, .mlp_bias = true});
}

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "persimmon",
                                       .defaults = R"({"vocab_size": 262144, "hidden_size": 4096,
                               "intermediate_size": 16384, "num_hidden_layers": 36,
                               "num_attention_heads": 64, "hidden_act": "relu2",
                               "max_position_embeddings": 16384, "rms_norm_eps": 1e-5,
                               "partial_rotary_factor": 0.5})",
                                       .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
                                       .unread = {"num_key_value_heads", "head_dim"},
                                       .flags = {{"qk_layernorm", kQkNorm, true}},
                                       .partial_rope = true,
                                       .qkv_bias = true}},
                            .components = {{.rules = rules, .build = build}},
                            .classifiers = {{"Persimmon", score_head}}};

}  // namespace ferry::converters::families::persimmon
