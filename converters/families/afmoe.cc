// AFMoE (Arcee Trinity): norms around both blocks, attention with a gate from the input of the
// block, RoPE in layers with a window alone, experts of DeepSeek V3 without groups.
// Source: transformers, models/afmoe/modeling_afmoe.py.

#include <cmath>

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::afmoe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kAfmoeGguf[] = {
    {"blk.{i}.attn_gate.weight", "model.layers.{i}.self_attn.gate_proj.weight"},
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.pre_mlp_layernorm.weight"},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_mlp_layernorm.weight"},
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.mlp.expert_bias"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.router.gate.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.mlp.experts.{e}.gate_proj.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.mlp.experts.{e}.up_proj.weight", kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.mlp.experts.{e}.down_proj.weight", kStacked},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.flag_or("mup_enabled", false))) {
    config.scalars.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  }
  return read_one_group(fields, config, "num_shared_experts");
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  const std::string layer = prefix + "layers.{i}.", mlp = layer + "mlp.";
  std::vector<KeyRule> all = concat(
      {standard_matrix_rules(prefix), bias_rules(prefix, bias, bias, /*mlp=*/false),
       rename_rules(layer,
                    {{"self_attn.gate_proj.weight", "layers.{i}.attention.wg.weight"},
                     {"self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                     {"input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                     {"post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
                     {"pre_mlp_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                     {"post_mlp_layernorm.weight", "layers.{i}.post_ffn_norm.weight"}}),
       rename_rules(prefix, {{"norm.weight", "norm.weight"}})});
  if (config.moe.experts == 0) return all;
  return concat({all, expert_rules(prefix, config), shared_experts_rules(prefix, config),
                 rename_rules(mlp, {{"router.gate.weight", "layers.{i}.feed_forward.gate.weight"},
                                    {"expert_bias", "layers.{i}.feed_forward.gate.choice_bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_attention_decoder(config, options,
                                 {.qkv_bias = bias,
                                  .output_bias = bias,
                                  .qk_norm = AttentionStyle::QkNorm::kHead,
                                  .own_gate = true},
                                 {.before = true, .after = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "afmoe",
               .defaults = R"({"vocab_size": 200192, "hidden_size": 2048,
                               "intermediate_size": 6144, "moe_intermediate_size": 1408,
                               "num_hidden_layers": 32, "first_k_dense_replace": 1,
                               "num_attention_heads": 16, "head_dim": 128,
                               "max_position_embeddings": 16384, "rms_norm_eps": 1e-5,
                               "num_experts": 64, "num_experts_per_tok": 6,
                               "num_shared_experts": 2, "norm_topk_prob": true,
                               "routed_scaling_factor": 1.0, "sliding_window": 1024,
                               "sliding_window_pattern": 4})",
               .names = {{"first_k_dense_replace", {"num_dense_layers"}},
                         {"routed_scaling_factor", {"route_scale"}},
                         {"sliding_window_pattern", {"global_attn_every_n_layers"}}},
               .unread = {"norm_topk_prob"},
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .attention_bias = true,
               .rope_layers = RopeLayers::kSliding,
               .experts = ExpertRule::kAfterFirst,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "afmoe",
              .tables = {kFrame, kAttention, kValueAndOutput, kMlp, kAfmoeGguf, kSharedExperts},
              .sigmoid_experts = true,
              .window_every = 4,
              .own_keys = GgufOwnKeys::kAfmoe,
              .keys = llama_keys(
                  {kSharedCount, kExpertLength, kDenseBlocks, kExpertNorm, kExpertScale, kWindow}),
              .unread = attention_biases(),
              .scaled_embedding = true,
              .turns_windows = true}}};

}  // namespace ferry::converters::families::afmoe
