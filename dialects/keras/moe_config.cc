// Translates the classes with experts: Mixtral, Qwen 1.5 and 2 (QwenMoe), Qwen 3 and GPT-OSS.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "converters/config/json_fields.h"
#include "dialects/keras/backbones.h"

namespace ferry::converters {
namespace {

// KerasHub fixes these in the code of GPT-OSS.
constexpr int64_t kYarnPositions = 4096;
constexpr double kYarnFast = 32.0, kYarnSlow = 1.0;

constexpr bool every_layer(int64_t) { return true; }
constexpr bool odd_layers(int64_t layer) { return layer % 2 == 1; }

Result<KerasJson> keras_mixtral(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_sizes(config, "mixtral", {}));
  FERRY_RETURN_IF_ERROR(set_keras_rope(out, config));
  FERRY_RETURN_IF_ERROR(
      set_keras_experts(out, config, "num_local_experts", {1, kExpertRange.max}, 2));
  const auto window = FERRY_TRY(keras_window(config, "sliding_window", 512));
  out["sliding_window"] = window ? KerasJson(*window) : KerasJson(nullptr);
  out["tie_word_embeddings"] = false;
  return out;
}

// Translates the options that QwenMoe and Qwen3Moe share.
Result<KerasJson> keras_qwen_moe(const JsonFields& config, const char* model_type,
                                 KerasHeadDim head_dim, IntRange experts) {
  KerasJson out = FERRY_TRY(keras_sizes(config, model_type, {.head_dim = head_dim}));
  FERRY_RETURN_IF_ERROR(set_keras_rope(out, config));
  FERRY_RETURN_IF_ERROR(set_keras_experts(out, config, "num_experts", experts, 4));
  out["moe_intermediate_size"] = FERRY_TRY(config.required("moe_intermediate_dim", kSizeRange));
  out["norm_topk_prob"] = FERRY_TRY(config.flag_or("norm_top_k_prob", false));
  out["tie_word_embeddings"] = FERRY_TRY(config.flag_or("tie_word_embeddings", false));
  return out;
}

// In KerasHub every layer of a QwenMoe is built as layer 0, so all layers have experts or none has.
Status refuse_dense_layers(const JsonFields& config) {
  if (FERRY_TRY(config.integer_or("decoder_sparse_step", kLayerRange, 1)) != 1) {
    return unsupported_keras(config, "decoder_sparse_step",
                             "is not 1: KerasHub makes all layers alike");
  }
  const auto dense = FERRY_TRY(config.integers("mlp_only_layers", {0, kLayerRange.max}));
  if (!dense || dense->empty()) return {};
  return unsupported_keras(config, "mlp_only_layers",
                           "is not empty: KerasHub makes all layers alike");
}

Result<KerasJson> keras_qwen2_moe(const JsonFields& config, bool) {
  KerasJson out =
      FERRY_TRY(keras_qwen_moe(config, "qwen2_moe", KerasHeadDim::kShare, {1, kExpertRange.max}));
  FERRY_RETURN_IF_ERROR(refuse_dense_layers(config));
  out["shared_expert_intermediate_size"] =
      FERRY_TRY(config.required("shared_expert_intermediate_dim", kSizeRange));
  out["use_sliding_window"] = FERRY_TRY(config.flag_or("use_sliding_window_attention", false));
  out["sliding_window"] =
      FERRY_TRY(config.integer_or("sliding_window_size", kPositionRange, 32768));
  if (out["use_sliding_window"] == true) out["layer_types"] = keras_layer_types(out, every_layer);
  return out;
}

// KerasHub computes the norms of q and k with 1e-6, whatever the configuration says, as in Qwen3
// (llama_config.cc).
Result<KerasJson> keras_qwen3_moe(const JsonFields& config, bool) {
  KerasJson out =
      FERRY_TRY(keras_qwen_moe(config, "qwen3_moe", KerasHeadDim::kEither, kExpertRange));
  out["decoder_sparse_step"] = FERRY_TRY(config.integer_or("decoder_sparse_step", kLayerRange, 1));
  out["mlp_only_layers"] = FERRY_TRY(config.integers("mlp_only_layers", {0, kLayerRange.max}))
                               .value_or(std::vector<int64_t>{});
  const auto window = FERRY_TRY(keras_window(config, "sliding_window_size", 32768));
  out["use_sliding_window"] = window.has_value();
  out["sliding_window"] = window ? KerasJson(*window) : KerasJson(nullptr);
  return out;
}

// Frequencies of a range of pairs are scaled in part. KerasHub ends the range at the last pair at
// the latest, transformers at the last dimension. They agree if the range ends before both.
bool ends_before_last_pair(double theta, int64_t head_dim) {
  const auto dim = static_cast<double>(head_dim);
  const double turns = kYarnPositions / (kYarnSlow * 2.0 * std::numbers::pi);
  return dim * std::log(turns) <= (dim / 2.0 - 1.0) * 2.0 * std::log(theta);
}

// The RoPE of GPT-OSS is always yarn. A factor of 1 makes it a plain RoPE.
Status set_keras_yarn(KerasJson& out, const JsonFields& config) {
  const double theta = FERRY_TRY(config.number_or("rope_max_wavelength", kThetaRange, 10000.0));
  const double factor = FERRY_TRY(config.number_or("rope_scaling_factor", kFactorRange, 1.0));
  out["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", theta}};
  if (factor == 1.0) return {};
  if (factor < 1.0) return unsupported_keras(config, "rope_scaling_factor", "is below 1");
  if (!ends_before_last_pair(theta, out["head_dim"].get<int64_t>())) {
    return unsupported_keras(config, "rope_max_wavelength",
                             fmt::format("is {}, too small for the yarn RoPE of heads of {}", theta,
                                         out["head_dim"].get<int64_t>()));
  }
  out["rope_parameters"] = {{"rope_type", "yarn"},
                            {"rope_theta", theta},
                            {"factor", factor},
                            {"beta_fast", kYarnFast},
                            {"beta_slow", kYarnSlow},
                            {"truncate", false},
                            {"original_max_position_embeddings", kYarnPositions}};
  return {};
}

// KerasHub has windows in layers 1, 3, ..., the original in layers 0, 2, ... In KerasHub the window
// does not count the token itself, so a token attends to one token more than in the original.
Result<KerasJson> keras_gpt_oss(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_sizes(config, "gpt_oss", {.head_dim = KerasHeadDim::kEither}));
  FERRY_RETURN_IF_ERROR(set_keras_yarn(out, config));
  FERRY_RETURN_IF_ERROR(
      set_keras_experts(out, config, "num_local_experts", {1, kExpertRange.max}, 2));
  const int64_t most = kPositionRange.max - 1;
  const auto before = config.states("sliding_window")
                          ? FERRY_TRY(config.integer("sliding_window", {0, most})).value_or(0)
                          : int64_t{4096};
  out["sliding_window"] = before > 0 ? KerasJson(before + 1) : KerasJson(nullptr);
  out["layer_types"] = keras_layer_types(
      out, before > 0 ? odd_layers : [](int64_t) { return false; });
  out["tie_word_embeddings"] = false;
  return out;
}

// These keys are for training, and for outputs beside the states.
constexpr std::string_view kMoeInert[] = {"router_jitter_noise", "router_aux_loss_coef",
                                          "router_aux_loss_coefficient", "output_router_logits"};
constexpr KerasBackbone kMoeClasses[] = {{"MixtralBackbone", keras_mixtral, kMoeInert},
                                         {"QwenMoeBackbone", keras_qwen2_moe, kMoeInert},
                                         {"Qwen3MoeBackbone", keras_qwen3_moe, kMoeInert},
                                         {"GptOssBackbone", keras_gpt_oss, kMoeInert}};

}  // namespace

std::span<const KerasBackbone> keras_moes() { return kMoeClasses; }

}  // namespace ferry::converters
