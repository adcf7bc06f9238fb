// ERNIE 4.5: Llama whose RoPE rotates neighbouring dimensions; use_bias gives every projection a
// bias. In models with experts a bias helps to choose them, and the head may have a bias too.
// Source: transformers, models/ernie4_5/modeling_ernie4_5.py,
// models/ernie4_5_moe/modeling_ernie4_5_moe.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::ernie4_5 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kErnieGguf[] = {
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.mlp.moe_statics.e_score_correction_bias"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.gate.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.mlp.experts.{e}.gate_proj.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.mlp.experts.{e}.up_proj.weight", kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.mlp.experts.{e}.down_proj.weight", kStacked},
};

// Readers of files with experts know no biases.
TensorNames all_biases() {
  TensorNames names = attention_biases();
  for (const std::string_view name : mlp_biases()) names.push_back(name);
  names.insert(names.end(), {"output.bias", "blk.{i}.ffn_gate_shexp.bias",
                             "blk.{i}.ffn_up_shexp.bias", "blk.{i}.ffn_down_shexp.bias"});
  return names;
}

Status read_moe(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kHeadBias] = config.attention_bias ? 1 : 0;
  MoeConfig& moe = config.moe;
  if (moe.experts == 0) return {};
  moe.choice_bias = true;
  moe.shared_gate = false;
  moe.least_norm = FERRY_TRY(fields.number_or("moe_norm_min", {0.0, 1.0}, 0.0));
  const int64_t shared = FERRY_TRY(fields.integer_or("moe_num_shared_experts", kExpertRange, 0));
  moe.shared_size = shared * moe.expert_size;
  if (moe.shared_size <= kSizeRange.max) return {};
  return fields.bad("moe_num_shared_experts", "is too many");
}

// The bias is a matrix of one row.
KeyRule choice_bias_rule(const std::string& source) {
  const auto whole = [](const ModelConfig& c) { return RowOrder{run_piece(0, 0, c.moe.experts)}; };
  KeyRule rule;
  rule.name = "bias of experts";
  rule.source = source;
  rule.expected_shape = [](const ModelConfig& c) { return Shape{1, c.moe.experts}; };
  rule.targets = {{.name = "layers.{i}.feed_forward.gate.choice_bias",
                   .rows = whole,
                   .shape = [](const ModelConfig& c) { return Shape{c.moe.experts}; },
                   .elements = true}};
  return rule;
}

std::vector<KeyRule> moe_rules(const ModelConfig& config, const std::string& prefix) {
  const std::string mlp = prefix + "layers.{i}.mlp.";
  return concat(
      {shared_experts_rules(prefix, config),
       expert_rules(prefix, config),
       {choice_bias_rule(mlp + "moe_statics.e_score_correction_bias"),
        drop_rule(prefix + "mtp*", "multi-token prediction: not part of the model's output")}});
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  std::vector<KeyRule> all = concat(
      {paired_matrix_rules(prefix, bias, bias, config.mlp_bias), standard_norm_rules(prefix)});
  if (config.number(kHeadBias) > 0) {
    all.push_back(rename_rules("", {{"lm_head.bias", "output.bias"}}).front());
  }
  return config.moe.experts == 0 ? all : concat({all, moe_rules(config, prefix)});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "ernie4_5",
               .defaults = R"({"vocab_size": 103424, "hidden_size": 1024,
                               "intermediate_size": 3072, "num_hidden_layers": 18,
                               "num_attention_heads": 16, "num_key_value_heads": 2,
                               "head_dim": 128, "max_position_embeddings": 131072,
                               "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                               "tie_word_embeddings": true})",
               .names = {{"attention_bias", {"use_bias"}}, {"mlp_bias", {"use_bias"}}},
               .attention_bias = true,
               .mlp_bias = true},
              {.name = "ernie4_5_moe",
               .defaults = R"({"vocab_size": 103424, "hidden_size": 2560,
                               "intermediate_size": 12288, "num_hidden_layers": 28,
                               "num_attention_heads": 20, "num_key_value_heads": 4,
                               "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                               "rope_theta": 500000.0, "tie_word_embeddings": true,
                               "moe_intermediate_size": 1536, "num_experts": 64,
                               "num_experts_per_tok": 6, "moe_num_shared_experts": 2,
                               "moe_layer_start_index": 1, "moe_layer_end_index": -1,
                               "moe_layer_interval": 1, "moe_norm_min": 1e-12,
                               "norm_topk_prob": true})",
               .names = {{"attention_bias", {"use_bias"}},
                         {"mlp_bias", {"use_bias"}},
                         {"num_experts", {"num_experts", "moe_num_experts"}},
                         {"num_experts_per_tok", {"num_experts_per_tok", "moe_k"}}},
               .unread = {"norm_topk_prob"},
               .attention_bias = true,
               .mlp_bias = true,
               .experts = ExpertRule::kBetween,
               .read = read_moe}},
    .components = {{.rules = rules, .build = build_llama}},
    .gguf = {{.name = "ernie4_5",
              .tokenizer_keys = {.sentence_piece = true, .stated_prefix = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = standard_keys(),
              .unread = mlp_biases()},
             {.name = "ernie4_5-moe",
              .tokenizer_keys = {.sentence_piece = true, .stated_prefix = true},
              .model_type = "ernie4_5_moe",
              .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp, kErnieGguf,
                         kSharedExperts},
              .normed_experts = true,
              .own_keys = GgufOwnKeys::kErnie,
              .keys = standard_keys(
                  {kExpertCounts, kExpertInterval, kExpertLength, kSharedCount, kSharedLength}),
              .unread = all_biases(),
              .needs_experts = true}}};

}  // namespace ferry::converters::families::ernie4_5
