// MiniMax M2: norms of q and k over all heads together, RoPE over a part of a head, and experts
// that sigmoids choose. Source: transformers, models/minimax_m2/modeling_minimax_m2.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::minimax_m2 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kMinimaxGguf[] = {
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.block_sparse_moe.e_score_correction_bias"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.block_sparse_moe.gate.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w1.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w2.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w3.weight",
     kStacked},
};

// Released configs state rotary_dim, which counts where nothing states the part of a head.
Status read(const JsonFields& fields, ModelConfig& config) {
  config.moe.scores = MoeConfig::Scores::kSigmoid;
  config.moe.choice_bias = true;
  const auto turned = FERRY_TRY(fields.integer("rotary_dim", kHeadDimRange));
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    const auto rope = FERRY_TRY(fields.object(object));
    if (rope && rope->states("partial_rotary_factor")) return {};
  }
  if (turned && !fields.states("partial_rotary_factor")) config.rope.rotary_dim = *turned;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  constexpr const char* kBias = "layers.{i}.feed_forward.gate.choice_bias";
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       block_sparse_rules(prefix, config), expert_rules(prefix, config),
       rename_rules(layer, {{"self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                            {"self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                            {"block_sparse_moe.e_score_correction_bias", kBias},
                            {"mlp.e_score_correction_bias", kBias}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qk_norm = AttentionStyle::QkNorm::kWhole});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "minimax_m2",
               .defaults = R"({"vocab_size": 200064, "hidden_size": 3072,
                               "num_hidden_layers": 62, "num_attention_heads": 48,
                               "num_key_value_heads": 8, "head_dim": 128,
                               "max_position_embeddings": 196608, "rope_theta": 5000000.0,
                               "num_experts": 256, "num_experts_per_tok": 8,
                               "moe_intermediate_size": 1536})",
               // The class maps the second name of the number of experts to the first.
               .names = {{"num_experts", {"num_local_experts", "num_experts"}},
                         {"moe_intermediate_size", {"intermediate_size"}}},
               .partial_rope = true,
               .experts = ExpertRule::kAll,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "minimax-m2",
              .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMinimaxGguf},
              .partial_rotary = true,
              .normed_experts = true,
              .sigmoid_experts = true,
              .states_gating = true,
              .keys = standard_keys({kExpertLength, kRopeDimension}),
              .own_head = true}}};

}  // namespace ferry::converters::families::minimax_m2
