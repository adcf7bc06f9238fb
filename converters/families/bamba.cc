// Bamba: Mamba-2 in most layers, attention with RoPE over half of each head in the others, and an
// MLP in every layer.
// Source: transformers, models/bamba/modeling_bamba.py.

#include <algorithm>

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::bamba {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) { return read_mamba(fields, config); }

Result<std::vector<LayerType>> layers(const JsonFields& fields, const ModelConfig& config) {
  const auto attend = FERRY_TRY(fields.integers("attn_layer_indices", {INT32_MIN, INT32_MAX}));
  std::vector<LayerType> types(static_cast<size_t>(config.num_layers), LayerType::kMamba);
  if (!attend) return types;
  for (const int64_t layer : *attend) {
    if (layer < 0 || layer >= config.num_layers) continue;
    types[static_cast<size_t>(layer)] = LayerType::kFullAttention;
  }
  return types;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {mamba_decoder_rules(config, prefix), mamba_rules(prefix + "layers.{i}.mamba.", config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_mixed_decoder(config, options, {.qkv_bias = bias, .output_bias = bias}, mamba_mixer);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "bamba",
               .defaults = R"({"vocab_size": 128000, "hidden_size": 4096,
                               "intermediate_size": 14336, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
                               "partial_rotary_factor": 0.5, "mamba_n_heads": 128,
                               "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256,
                               "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true})",
               .names = {{"layer_types", {"layers_block_type", "layer_types"}}},
               .unread = {"partial_rotary_factor"},
               .partial_rope = true,
               .attention_bias = true,
               .mlp_bias = true,
               .mamba = true,
               .layers = layers,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::bamba
