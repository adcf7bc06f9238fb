// Granite 4: Granite with Mamba-2 in some layers, an MLP whose gate and up are in one tensor, and
// experts beside it, or without any (Micro, 1B, 350M).
// Source: transformers, models/granitemoehybrid/modeling_granitemoehybrid.py.

#include <algorithm>

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::granitemoehybrid {
namespace {

using namespace gguf_tables;
using enum GgufKey;

const GgufName kMambaGguf[] = {
    {"blk.{i}.ssm_a", "model.layers.{i}.mamba.A_log", kHeadNegExp},
    {"blk.{i}.ssm_d", "model.layers.{i}.mamba.D", kHeadValues},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.mamba.dt_bias"},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.mamba.norm.weight", kGroupRows},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.mamba.conv1d.weight", kConv},
    {"blk.{i}.ssm_conv1d.bias", "model.layers.{i}.mamba.conv1d.bias"},
    {"blk.{i}.ssm_in.weight", "model.layers.{i}.mamba.in_proj.weight"},
    {"blk.{i}.ssm_in.bias", "model.layers.{i}.mamba.in_proj.bias"},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.mamba.out_proj.weight"},
    {"blk.{i}.ssm_out.bias", "model.layers.{i}.mamba.out_proj.bias"},
};

bool has_mamba_layers(const ModelConfig& config) {
  return std::ranges::count(config.layer_types, LayerType::kMamba) > 0;
}

bool has_attention_and_experts(const ModelConfig& config) {
  return !has_mamba_layers(config) && config.moe.experts > 0;
}

bool has_attention_and_mlps(const ModelConfig& config) {
  return !has_mamba_layers(config) && config.moe.experts == 0;
}

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
  return build_mixed_decoder(config, options, {.qkv_bias = bias, .output_bias = bias}, mamba_mixer);
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
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "granitehybrid",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts,
                         kExpertWeights, kMambaGguf},
              .multipliers = true,
              .without_heads = "mamba",
              .flags = {{"blk.{i}.ssm_conv1d.bias", "mamba_conv_bias"},
                        {"blk.{i}.ssm_in.bias", "mamba_proj_bias"}},
              .own_keys = GgufOwnKeys::kMamba,
              .keys = granite_keys({kExpertSizes, kMambaSizes, kTurned}),
              .tokenizer = "granitehybrid",
              .writes = has_mamba_layers,
              .unread = {"blk.{i}.ssm_in.bias", "blk.{i}.ssm_out.bias"},
              .equal_heads = true},
             {.name = "granitemoe",
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts,
                         kExpertWeights},
              .multipliers = true,
              .without_heads = "mamba",
              .sign = GgufSign::kSharedExpert,
              .own_keys = GgufOwnKeys::kMamba,
              .keys = granite_keys({kExpertSizes, kMambaSizes, kTurned}),
              .tokenizer = "granitehybrid",
              .writes = has_attention_and_experts,
              .rope_factors = true,
              .equal_heads = true},
             {.name = "granite",
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts},
              .multipliers = true,
              .without_heads = "mamba",
              .sign = GgufSign::kNoRope,
              .own_keys = GgufOwnKeys::kMamba,
              .keys = granite_keys({kExpertSizes, kMambaSizes, kTurned}),
              .tokenizer = "granitehybrid",
              .writes = has_attention_and_mlps,
              .rope_factors = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::granitemoehybrid
