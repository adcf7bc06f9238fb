#include "converters/config/type_parts.h"

#include <fmt/format.h>

#include "converters/config/json_fields.h"

namespace ferry::converters {
namespace {

constexpr double kSumEpsilon = 1e-20;  // a constant of the reference

}  // namespace

std::vector<KeyNames> gpt_names(bool head_dim) {
  std::vector<KeyNames> names = {
      {"hidden_size", {"hidden_size", "n_embd"}},
      {"num_hidden_layers", {"num_hidden_layers", "n_layer"}},
      {"num_attention_heads", {"num_attention_heads", "n_head"}},
      {"max_position_embeddings", {"max_position_embeddings", "n_positions"}},
      {"intermediate_size", {"n_inner"}},
      {"rms_norm_eps", {"layer_norm_epsilon"}},
      {"num_key_value_heads", {}}};
  if (!head_dim) names.push_back({"head_dim", {}});
  return names;
}

Status check_whole_heads(const JsonFields& fields, ModelConfig& config) {
  if (config.q_size() == config.hidden_size) return {};
  return fields.bad("head_dim", fmt::format("is {}: {} heads do not make {}", config.head_dim,
                                            config.num_heads, config.hidden_size));
}

Status check_head_blocks(const JsonFields& fields, const ModelConfig& config, int64_t blocks) {
  if (config.num_heads % blocks == 0) return {};
  return fields.bad("num_attention_heads",
                    fmt::format("is {}, not a multiple of {} blocks", config.num_heads, blocks));
}

Status read_rotary_dim(const JsonFields& fields, ModelConfig& config) {
  const int64_t dim = FERRY_TRY(fields.required("rotary_dim", kHeadDimRange));
  config.rope.rotary_dim = dim;
  if (dim <= config.head_dim && dim % 2 == 0) return {};
  return fields.bad("rotary_dim",
                    fmt::format("is {}: not an even number up to {}", dim, config.head_dim));
}

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

Status read_one_group(const JsonFields& fields, ModelConfig& config, std::string_view shared) {
  MoeConfig& moe = config.moe;
  if (moe.experts == 0) return {};
  moe.scores = MoeConfig::Scores::kSigmoid;
  moe.choice_bias = true;
  moe.norm_epsilon = kSumEpsilon;
  moe.shared_gate = false;
  moe.scale = FERRY_TRY(fields.number_or("routed_scaling_factor", kScaleRange, 1.0));
  moe.shared_size = FERRY_TRY(fields.required(shared, kExpertRange)) * moe.expert_size;
  if (moe.shared_size <= kSizeRange.max) return {};
  return fields.bad(shared, fmt::format("is too many of {}", moe.expert_size));
}

Status read_sigmoid_experts(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_deepseek_experts(fields, config));
  if (config.moe.experts == 0) return {};
  config.moe.scores = MoeConfig::Scores::kSigmoid;
  config.moe.choice_bias = true;
  config.moe.norm_epsilon = kSumEpsilon;
  return read_expert_groups(fields, config, 2);
}

}  // namespace ferry::converters
