// LFM2 with experts behind the first layers: scores are sigmoids, and a bias takes part in the
// choice. Source: transformers, models/lfm2_moe/modeling_lfm2_moe.py.

#include "converters/blocks/lfm2.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::lfm2_moe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kLfm2ExpertsGguf[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.feed_forward.gate.weight"},
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.feed_forward.expert_bias"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.w1.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.w2.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.w3.weight", kStacked},
};

constexpr double kSumEpsilon = 1e-6;  // a constant of the reference

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_lfm2(fields, config));
  if (fields.find("layer_types") == nullptr) return fields.bad("layer_types", "is missing");
  MoeConfig& moe = config.moe;
  if (moe.experts == 0) return {};
  moe.scores = MoeConfig::Scores::kSigmoid;
  moe.choice_bias = FERRY_TRY(fields.flag_or("use_expert_bias", false));
  moe.norm_epsilon = kSumEpsilon;
  moe.scale = FERRY_TRY(fields.number_or("routed_scaling_factor", kScaleRange, 1.0));
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string mlp = prefix + "layers.{i}.feed_forward.";
  return concat({lfm2_rules(config, prefix),
                 stacked_expert_rules(mlp + "experts.{e}.", "w1.weight", "w3.weight", "w2.weight"),
                 rename_rules(mlp, {{"gate.weight", "layers.{i}.feed_forward.gate.weight"},
                                    {"expert_bias", "layers.{i}.feed_forward.gate.choice_bias"}})});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "lfm2_moe",
               .defaults = R"({"vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168,
                               "moe_intermediate_size": 1792, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "max_position_embeddings": 128000, "rms_norm_eps": 1e-5,
                               "rope_theta": 1000000.0, "tie_word_embeddings": true,
                               "conv_L_cache": 3, "first_k_dense_replace": 2,
                               "num_experts_per_tok": 4, "num_experts": 32,
                               "use_expert_bias": true, "norm_topk_prob": true})",
               .names = {{"rms_norm_eps", {"norm_eps"}},
                         {"tie_word_embeddings", {"tie_embedding", "tie_word_embeddings"}},
                         {"first_k_dense_replace", {"num_dense_layers"}}},
               .activation_key = "",
               .lists_layers = true,
               .convs = true,
               .experts = ExpertRule::kAfterFirst,
               .read = read}},
    .components = {{.rules = rules, .build = build_lfm2}},
    .gguf = {{.name = "lfm2moe",
              .tables = {kLfm2, kLfm2ExpertsGguf},
              .normed_experts = true,
              .sigmoid_experts = true,
              .without_heads = "conv",
              .flags = {{"blk.{i}.exp_probs_b.bias", "use_expert_bias"}},
              .own_keys = GgufOwnKeys::kShortConvs,
              .keys = standard_keys(
                  {kExpertLength, kDenseBlocks, kExpertGating, kVocabulary, kShortConv}),
              .equal_heads = true}}};

}  // namespace ferry::converters::families::lfm2_moe
