#include "converters/blocks/deepseek_moe.h"

#include <fmt/format.h>

#include "converters/blocks/moe.h"
#include "converters/config/ranges.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// A member of ModelConfig::numbers: the layers behind those of the decoder that predict further
// tokens.
constexpr const char* kPredictionLayers = "prediction_layers";

constexpr double kSumEpsilon = 1e-20;  // a constant of the reference

}  // namespace

Status read_deepseek_experts(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kPredictionLayers] =
      FERRY_TRY(fields.integer_or("num_nextn_predict_layers", {0, kLayerRange.max}, 0));
  MoeConfig& moe = config.moe;
  if (moe.experts == 0) return {};
  moe.shared_gate = false;
  moe.scale = FERRY_TRY(fields.number_or("routed_scaling_factor", kScaleRange, 1.0));
  const int64_t shared = FERRY_TRY(fields.required("n_shared_experts", {1, kExpertRange.max}));
  moe.shared_size = shared * moe.expert_size;
  if (moe.shared_size <= kSizeRange.max) return {};
  return fields.bad("n_shared_experts",
                    fmt::format("is {}: too many of {}", shared, moe.expert_size));
}

Status read_expert_groups(const JsonFields& fields, ModelConfig& config, int64_t best) {
  MoeConfig& moe = config.moe;
  if (moe.experts == 0) return {};
  moe.groups = FERRY_TRY(fields.required("n_group", {1, kExpertRange.max}));
  moe.top_groups = FERRY_TRY(fields.required("topk_group", {1, kExpertRange.max}));
  moe.group_best = best;
  const int64_t size = moe.experts / moe.groups;
  if (moe.experts % moe.groups != 0 || size < best) {
    return fields.bad("n_group", fmt::format("is {}: {} experts are not as many groups of {} or "
                                             "more",
                                             moe.groups, moe.experts, best));
  }
  if (moe.top_groups > moe.groups || moe.per_token > moe.top_groups * size) {
    return fields.bad("topk_group",
                      fmt::format("is {} of {} groups of {} experts, for {} experts of a token",
                                  moe.top_groups, moe.groups, size, moe.per_token));
  }
  return {};
}

Status read_sigmoid_experts(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_deepseek_experts(fields, config));
  if (config.moe.experts == 0) return {};
  config.moe.scores = MoeConfig::Scores::kSigmoid;
  config.moe.choice_bias = true;
  config.moe.norm_epsilon = kSumEpsilon;
  return read_expert_groups(fields, config, 2);
}

std::vector<KeyRule> deepseek_expert_rules(const std::string& prefix, const ModelConfig& config) {
  std::vector<KeyRule> rules = expert_rules(prefix, config);
  for (int64_t i = 0; i < config.number(kPredictionLayers); ++i) {
    rules.push_back(drop_rule(fmt::format("{}layers.{}.*", prefix, config.num_layers + i),
                              "multi-token prediction: not part of the model's output"));
  }
  if (config.moe.experts == 0) return rules;
  if (config.mlp_bias) {
    rules = concat({rules, rename_rules(prefix, {{"layers.{i}.mlp.shared_experts.gate_proj.bias",
                                                  "layers.{i}.feed_forward.shared.w1.bias"},
                                                 {"layers.{i}.mlp.shared_experts.up_proj.bias",
                                                  "layers.{i}.feed_forward.shared.w3.bias"},
                                                 {"layers.{i}.mlp.shared_experts.down_proj.bias",
                                                  "layers.{i}.feed_forward.shared.w2.bias"}})});
  }
  return concat({rules, rename_rules(prefix, {{"layers.{i}.mlp.gate.e_score_correction_bias",
                                               "layers.{i}.feed_forward.gate.choice_bias"},
                                              {"layers.{i}.mlp.shared_experts.gate_proj.weight",
                                               "layers.{i}.feed_forward.shared.w1.weight"},
                                              {"layers.{i}.mlp.shared_experts.up_proj.weight",
                                               "layers.{i}.feed_forward.shared.w3.weight"},
                                              {"layers.{i}.mlp.shared_experts.down_proj.weight",
                                               "layers.{i}.feed_forward.shared.w2.weight"}})});
}

}  // namespace ferry::converters
