// read_experts() reads number, sizes and layers of experts.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "converters/config/config_parts.h"

namespace ferry::converters {
namespace {

constexpr std::string_view kLayerTypes = "mlp_layer_types";

Result<std::vector<bool>> typed_layers(const JsonFields& fields, int64_t num_layers) {
  const nlohmann::json& names = *fields.find(kLayerTypes);
  if (!names.is_array() || std::ssize(names) != num_layers) {
    return fields.bad(kLayerTypes, fmt::format("is not a list for {} layers", num_layers));
  }
  std::vector<bool> layers;
  for (const nlohmann::json& name : names) {
    if (name != "dense" && name != "sparse") {
      return fields.error(ErrorCode::kUnsupported, kLayerTypes, "has neither dense nor sparse");
    }
    layers.push_back(name == "sparse");
  }
  return layers;
}

// The last layer may be -1, which means that of the model.
Result<std::vector<bool>> layers_between(const JsonFields& fields, int64_t num_layers) {
  const int64_t step = FERRY_TRY(fields.required("moe_layer_interval", kLayerRange));
  const int64_t first = FERRY_TRY(fields.required("moe_layer_start_index", {0, INT32_MAX}));
  const int64_t last = FERRY_TRY(fields.required("moe_layer_end_index", {-1, INT32_MAX}));
  std::vector<bool> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    layers.push_back((layer + 1) % step == 0 && layer >= first && (last < 0 || layer <= last));
  }
  return layers;
}

// Numbers of layers that the model does not have are of no account.
Result<std::vector<bool>> named_layers(const JsonFields& fields, std::span<const int64_t> named,
                                       int64_t num_layers) {
  (void)fields.find("decoder_sparse_step");  // so that it does not count as unused
  std::vector<bool> layers(static_cast<size_t>(num_layers), false);
  for (const int64_t layer : named) {
    if (layer >= 0 && layer < num_layers) layers[static_cast<size_t>(layer)] = true;
  }
  return layers;
}

Result<std::vector<bool>> expert_layers(const JsonFields& fields, const ModelType& type,
                                        int64_t num_layers) {
  std::vector<bool> layers(static_cast<size_t>(num_layers), true);
  if (type.experts == ExpertRule::kAll) return layers;
  if (type.experts == ExpertRule::kBetween) return layers_between(fields, num_layers);
  if (type.experts == ExpertRule::kTyped && fields.find(kLayerTypes) != nullptr) {
    return typed_layers(fields, num_layers);
  }
  if (type.experts == ExpertRule::kAfterFirst || type.experts == ExpertRule::kTyped) {
    const int64_t dense = FERRY_TRY(fields.required("first_k_dense_replace", {0, INT32_MAX}));
    std::fill_n(layers.begin(), std::min(dense, num_layers), false);
    return layers;
  }
  if (type.experts == ExpertRule::kPeriodic) {
    const int64_t period = FERRY_TRY(fields.required("expert_layer_period", kSizeRange));
    const int64_t offset = FERRY_TRY(fields.required("expert_layer_offset", {0, kSizeRange.max}));
    if (offset >= period) {
      return fields.bad("expert_layer_offset", "is not below expert_layer_period");
    }
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      layers[static_cast<size_t>(layer)] = layer % period == offset;
    }
    return layers;
  }
  std::vector<int64_t> dense;
  if (type.experts == ExpertRule::kNamed) {
    const auto named = FERRY_TRY(fields.integers("moe_layers", {INT32_MIN, INT32_MAX}));
    if (named) return named_layers(fields, *named, num_layers);
  } else {
    dense = FERRY_TRY(fields.integers("mlp_only_layers", {0, kLayerRange.max}))
                .value_or(std::vector<int64_t>{});
  }
  const int64_t step = FERRY_TRY(fields.integer_or("decoder_sparse_step", kLayerRange, 1));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    layers[static_cast<size_t>(layer)] =
        (layer + 1) % step == 0 && std::ranges::count(dense, layer) == 0;
  }
  return layers;
}

}  // namespace

// The sizes of experts are read only if some layer has experts: in a dense config they may be
// anything.
Status read_experts(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  if (type.experts == ExpertRule::kNever) return {};
  const std::string_view name = "num_experts";
  const int64_t experts = FERRY_TRY(fields.required(name, kExpertRange));
  std::vector<bool> layers = FERRY_TRY(expert_layers(fields, type, config.num_layers));
  const bool no_other = type.experts == ExpertRule::kAll || (type.experts == ExpertRule::kNamed &&
                                                             std::ranges::count(layers, true) > 0);
  if (experts == 0 && no_other) {
    return fields.bad(name, "is 0, but there is no other MLP");
  }
  if (experts == 1 && type.experts == ExpertRule::kPeriodic) return {};
  if (experts == 0 || std::ranges::count(layers, true) == 0) return {};

  if (config.activation != Activation::kSilu) {
    return fields.error(ErrorCode::kUnsupported, "hidden_act",
                        "of experts: only silu is supported");
  }
  MoeConfig& moe = config.moe;
  moe.experts = experts;
  moe.layers = std::move(layers);
  moe.per_token =
      FERRY_TRY(required_of_layers(fields, "num_experts_per_tok", {1, kExpertRange.max}));
  if (moe.per_token > experts) {
    return fields.bad("num_experts_per_tok",
                      fmt::format("is {} of {} experts", moe.per_token, experts));
  }
  moe.expert_size = FERRY_TRY(fields.required("moe_intermediate_size", kSizeRange));
  if (type.shared_expert) {
    moe.shared_size = FERRY_TRY(fields.required("shared_expert_intermediate_size", kSizeRange));
  }
  moe.norm_top_scores =
      type.experts == ExpertRule::kAll || FERRY_TRY(fields.flag_or("norm_topk_prob", false));
  return {};
}

}  // namespace ferry::converters
