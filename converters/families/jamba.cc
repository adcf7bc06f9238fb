// Jamba: Mamba in most layers, attention without RoPE in the others, and experts in some of them.
// Source: transformers, models/jamba/modeling_jamba.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/blocks/selective_scan.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::jamba {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.final_layernorm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.pre_ff_layernorm.weight"},
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"},
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.feed_forward.gate_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.feed_forward.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.feed_forward.down_proj.weight"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.feed_forward.router.weight"},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.down_proj.weight",
     kStacked},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.gate_proj.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.up_proj.weight",
     kStacked},
    {"blk.{i}.ssm_a", "model.layers.{i}.mamba.A_log", kNegExp},
    {"blk.{i}.ssm_b_norm.weight", "model.layers.{i}.mamba.b_layernorm.weight"},
    {"blk.{i}.ssm_c_norm.weight", "model.layers.{i}.mamba.c_layernorm.weight"},
    {"blk.{i}.ssm_conv1d.bias", "model.layers.{i}.mamba.conv1d.bias"},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.mamba.conv1d.weight", kConv},
    {"blk.{i}.ssm_d", "model.layers.{i}.mamba.D"},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.mamba.dt_proj.bias"},
    {"blk.{i}.ssm_dt.weight", "model.layers.{i}.mamba.dt_proj.weight"},
    {"blk.{i}.ssm_dt_norm.weight", "model.layers.{i}.mamba.dt_layernorm.weight"},
    {"blk.{i}.ssm_in.weight", "model.layers.{i}.mamba.in_proj.weight"},
    {"blk.{i}.ssm_in.bias", "model.layers.{i}.mamba.in_proj.bias"},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.mamba.out_proj.weight"},
    {"blk.{i}.ssm_out.bias", "model.layers.{i}.mamba.out_proj.bias"},
    {"blk.{i}.ssm_x.weight", "model.layers.{i}.mamba.x_proj.weight"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_selective_scan(fields, config));
  config.mamba.inner_norms = true;
  config.mamba.inner_weights = true;
  config.moe.norm_top_scores = false;
  return {};
}

Result<std::vector<LayerType>> layers(const JsonFields& fields, const ModelConfig& config) {
  const int64_t period = FERRY_TRY(fields.required("attn_layer_period", kSizeRange));
  const int64_t offset = FERRY_TRY(fields.required("attn_layer_offset", {0, kSizeRange.max}));
  if (offset >= period) return fields.bad("attn_layer_offset", "is not below attn_layer_period");
  std::vector<LayerType> types;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    types.push_back(layer % period == offset ? LayerType::kFullAttention : LayerType::kMamba);
  }
  return types;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string mixer = prefix + "layers.{i}.mamba.";
  const std::string mlp = prefix + "layers.{i}.feed_forward.";
  std::vector<KeyRule> all =
      concat({mamba_decoder_rules(config, prefix), selective_scan_rules(mixer, config),
              rename_rules(mixer, {{"dt_layernorm.weight", "layers.{i}.attention.dt_norm.weight"},
                                   {"b_layernorm.weight", "layers.{i}.attention.b_norm.weight"},
                                   {"c_layernorm.weight", "layers.{i}.attention.c_norm.weight"}})});
  if (config.moe.experts == 0) return all;
  return concat({all, rename_rules(mlp, {{"router.weight", "layers.{i}.feed_forward.gate.weight"}}),
                 stacked_expert_rules(mlp + "experts.{e}.", "gate_proj.weight", "up_proj.weight",
                                      "down_proj.weight"),
                 fused_expert_rules(mlp + "experts.gate_up_proj", mlp + "experts.down_proj")});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_mixed_decoder(config, options, {}, selective_scan);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "jamba",
               .defaults = R"({"vocab_size": 65536, "hidden_size": 4096,
                               "intermediate_size": 14336, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
                               "num_experts": 16, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 14336, "expert_layer_period": 2,
                               "expert_layer_offset": 1, "attn_layer_period": 8,
                               "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4,
                               "mamba_expand": 2, "mamba_dt_rank": "auto",
                               "mamba_conv_bias": true})",
               .names = {{"moe_intermediate_size", {"intermediate_size"}},
                         {"num_experts", {"num_experts", "num_local_experts"}},
                         {"layer_types", {"layers_block_type", "layer_types"}}},
               .unread = {"norm_topk_prob"},
               .rope = RopeRule::kNone,
               .mamba = true,
               .layers = layers,
               .rope_layers = RopeLayers::kNone,
               .experts = ExpertRule::kPeriodic,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "jamba",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kNames},
              .without_heads = "mamba",
              .flags = {{"blk.{i}.ssm_conv1d.bias", "mamba_conv_bias"},
                        {"blk.{i}.ssm_in.bias", "mamba_proj_bias"}},
              .own_keys = GgufOwnKeys::kJamba,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kKvHeads, kStateSizes,
                       kRmsEpsilon, kExpertCounts, kFileType},
              .unread = {"blk.{i}.ssm_in.bias", "blk.{i}.ssm_out.bias"},
              .turns_nothing = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::jamba
