// Translates the classes of Qwen 3.5, dense and with experts, whose layers have linear attention. A
// vision encoder is left out, because texts are computed without it.
#include <fmt/format.h>

#include <string>

#include "converters/config/json_fields.h"
#include "core/text.h"
#include "dialects/keras/backbones.h"

namespace ferry::converters {
namespace {

// Every fourth layer has full attention where the configuration lists no layer types.
Result<KerasJson> hybrid_layer_types(const JsonFields& config, int64_t layers) {
  const std::string_view key = "layer_types";
  const nlohmann::json* list = config.find(key);
  if (list != nullptr && (!list->is_array() || std::ssize(*list) < layers)) {
    return config.bad(key, fmt::format("is no list of {} layers", layers));
  }
  KerasJson types = KerasJson::array();
  for (int64_t layer = 0; layer < layers; ++layer) {
    nlohmann::json type = layer % 4 == 3 ? "full_attention" : "linear_attention";
    if (list != nullptr) type = (*list)[static_cast<size_t>(layer)];
    if (type != "full_attention" && type != "linear_attention") {
      return config.bad(key, fmt::format("has {} as element {}", printable(type.dump()), layer));
    }
    types.push_back(type.get<std::string>());
  }
  return types;
}

// The original model has no window. KerasHub ignores the default of the class too where it uses
// fused attention.
Status refuse_hybrid_window(const JsonFields& config) {
  const std::string_view key = "sliding_window_size";
  const auto window = FERRY_TRY(config.integer(key, {0, kPositionRange.max}));
  if (!window || *window == 0 || *window == 32768) return {};
  return unsupported_keras(config, key,
                           fmt::format("is {}: Qwen 3.5 has no sliding window", *window));
}

Result<KerasJson> keras_hybrid(const JsonFields& config, const char* model_type, bool mlp) {
  KerasJson out =
      FERRY_TRY(keras_sizes(config, model_type, {.head_dim = KerasHeadDim::kStated, .mlp = mlp}));
  FERRY_RETURN_IF_ERROR(set_keras_rope(out, config));
  FERRY_RETURN_IF_ERROR(refuse_hybrid_window(config));
  out["partial_rotary_factor"] =
      FERRY_TRY(config.number_or("partial_rotary_factor", kPartialRange, 0.25));
  out["layer_types"] =
      FERRY_TRY(hybrid_layer_types(config, out["num_hidden_layers"].get<int64_t>()));
  const struct {
    const char* key;
    IntRange range;
    int64_t otherwise;
  } numbers[] = {{"linear_num_key_heads", kHeadRange, 16},
                 {"linear_num_value_heads", kHeadRange, 32},
                 {"linear_key_head_dim", kHeadDimRange, 128},
                 {"linear_value_head_dim", kHeadDimRange, 128},
                 {"linear_conv_kernel_dim", kConvRange, 4}};
  for (const auto& [key, range, otherwise] : numbers) {
    out[key] = FERRY_TRY(config.integer_or(key, range, otherwise));
  }
  out["tie_word_embeddings"] = FERRY_TRY(config.flag_or("tie_word_embeddings", false));
  return out;
}

Result<KerasJson> keras_qwen3_5(const JsonFields& config, bool) {
  return keras_hybrid(config, "qwen3_5_text", /*mlp=*/true);
}

Result<KerasJson> keras_qwen3_5_moe(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_hybrid(config, "qwen3_5_moe_text", /*mlp=*/false));
  FERRY_RETURN_IF_ERROR(set_keras_experts(out, config, "num_experts", {1, kExpertRange.max}, 8));
  out["moe_intermediate_size"] = FERRY_TRY(config.required("moe_intermediate_dim", kSizeRange));
  out["shared_expert_intermediate_size"] =
      FERRY_TRY(config.required("shared_expert_intermediate_size", kSizeRange));
  return out;
}

// mrope_section concerns the positions of images alone.
constexpr std::string_view kHybridInert[] = {"vision_encoder", "mrope_section",
                                             "router_aux_loss_coefficient"};
constexpr KerasBackbone kHybridClasses[] = {
    {"Qwen3_5Backbone", keras_qwen3_5, kHybridInert},
    {"Qwen3_5MoeBackbone", keras_qwen3_5_moe, kHybridInert}};

}  // namespace

std::span<const KerasBackbone> keras_hybrids() { return kHybridClasses; }

}  // namespace ferry::converters
