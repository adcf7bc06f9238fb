// GPT-NeoX and Pythia: q, k and v in one tensor, head by head; attention and MLP side by side, each
// behind a layer norm, or in turn. Source: transformers, models/gpt_neox/modeling_gpt_neox.py.

#include "converters/blocks/styled_decoder.h"
#include "converters/config/head_checks.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt_neox {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string attention = prefix + "layers.{i}.attention.";
  const bool bias = config.attention_bias;
  return concat({packed_qkv_rules(attention + "query_key_value", bias, PackedLayout::kInterleaved),
                 parameter_rules(attention, bias, {{"dense", "layers.{i}.attention.wo"}}),
                 plain_mlp_rules(prefix, /*bias=*/true, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"layers.{i}.input_layernorm", "layers.{i}.attention_norm"},
                                  {"layers.{i}.post_attention_layernorm", "layers.{i}.ffn_norm"},
                                  {"final_layer_norm", "norm"}}),
                 rename_rules(prefix, {{"embed_in.weight", "tok_embeddings.weight"}}),
                 derived_rules(attention)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias, parallel = config.number(kParallelResidual) > 0;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias, .output_bias = bias},
                               .residuals = parallel ? Residuals::kSideBySide : Residuals::kInTurn,
                               .mlp_bias = true});
}

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
                    .build = build}}};

}  // namespace ferry::converters::families::gpt_neox
