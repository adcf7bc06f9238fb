// Granite 4: Granite with Mamba-2 in some layers, an MLP whose gate and up are in one tensor, and
// experts beside it, or without any (Micro, 1B, 350M).
// Source: transformers, models/granitemoehybrid/modeling_granitemoehybrid.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/families/families.h"
#include "converters/keys/granite_experts.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::granitemoehybrid {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  if (moe.experts > 0) {
    moe.scores = MoeConfig::Scores::kTopSoftmax;
    moe.shared_size = config.intermediate_size;
    moe.shared_gate = false;
  }
  FERRY_RETURN_IF_ERROR(read_mamba(fields, config));
  return granite::kFamily.types.front().read(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {granite_moe_rules(config, prefix), mamba_rules(prefix + "layers.{i}.mamba.", config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_mixed_decoder(config, options, {.qkv_bias = bias, .output_bias = bias}, mamba);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "granitemoehybrid",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 1024,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "num_experts": 8,
                               "num_experts_per_tok": 2, "moe_intermediate_size": 11008,
                               "first_k_dense_replace": 0, "mamba_n_heads": 128,
                               "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto",
                               "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true})",
               .names = {{"intermediate_size", {"shared_intermediate_size"}},
                         {"moe_intermediate_size", {"intermediate_size"}},
                         {"num_experts", {"num_local_experts"}},
                         {"first_k_dense_replace", {}},
                         {"layer_types", {"layers_block_type", "layer_types"}}},
               .lists_layers = true,
               .attention_bias = true,
               .mamba = true,
               .rope_layers = RopeLayers::kIfNamed,
               .experts = ExpertRule::kAfterFirst,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::granitemoehybrid
