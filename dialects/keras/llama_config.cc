// Translates the classes of Llama, Qwen 2 and 3, Mistral, Phi-3 and SmolLM3.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "converters/config/json_fields.h"
#include "core/text.h"
#include "dialects/keras/backbones.h"

namespace ferry::converters {
namespace {

constexpr FloatRange kDivisorRange = {1e-6, 1e6};

// Either all four numbers of Llama 3.1's frequency scaling are there, or none is.
Result<KerasJson> llama_scaling(const JsonFields& config) {
  const char* position_key = config.find("rope_position_scaling_factor") != nullptr
                                 ? "rope_position_scaling_factor"
                                 : "rope_scaling_factor";  // of KerasNLP
  const double position = FERRY_TRY(config.number_or(position_key, kFactorRange, 1.0));
  const char* keys[] = {"rope_frequency_adjustment_factor", "rope_low_freq_factor",
                        "rope_high_freq_factor", "rope_pretraining_sequence_length"};
  const auto present =
      std::ranges::count_if(keys, [&](const char* key) { return config.find(key) != nullptr; });
  if (present == 0) return keras_linear_scaling(position);
  for (const char* key : keys) {
    if (config.find(key) == nullptr) return config.bad(key, "is missing beside the other three");
  }
  if (position != 1.0) {
    return unsupported_keras(config, position_key, "is set together with a frequency scaling");
  }
  KerasJson out = {{"rope_type", "llama3"}};
  out["factor"] = *FERRY_TRY(config.number(keys[0], kFactorRange));
  out["low_freq_factor"] = *FERRY_TRY(config.number(keys[1], kFactorRange));
  out["high_freq_factor"] = *FERRY_TRY(config.number(keys[2], kFactorRange));
  out["original_max_position_embeddings"] = *FERRY_TRY(config.integer(keys[3], kPositionRange));
  return out;
}

Result<KerasJson> keras_llama(const JsonFields& config, bool own_head) {
  KerasJson out = FERRY_TRY(keras_sizes(config, "llama", {}));
  out["rope_theta"] = FERRY_TRY(config.number_or("rope_max_wavelength", kThetaRange, 10000.0));
  out["rope_scaling"] = FERRY_TRY(llama_scaling(config));
  out["tie_word_embeddings"] = FERRY_TRY(config.flag_or("tie_word_embeddings", !own_head));
  return out;
}

// In Qwen 2 and 3 every layer has the window, if there is one.
Result<KerasJson> keras_qwen(const JsonFields& config, const char* model_type,
                             KerasHeadDim head_dim) {
  KerasJson out = FERRY_TRY(keras_sizes(config, model_type, {.head_dim = head_dim}));
  FERRY_RETURN_IF_ERROR(set_keras_rope(out, config));
  out["tie_word_embeddings"] = FERRY_TRY(config.flag_or("tie_word_embeddings", true));
  return out;
}

Result<KerasJson> keras_qwen2(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_qwen(config, "qwen2", KerasHeadDim::kShare));
  std::optional<int64_t> window = FERRY_TRY(config.integer("sliding_window_size", kPositionRange));
  if (!FERRY_TRY(config.flag_or("use_sliding_window_attention", false))) {
    window = std::nullopt;
  } else if (!window) {
    window = 32768;
  }
  set_keras_window(out, window);
  return out;
}

// KerasHub computes the norms of q and k with 1e-5, whatever the configuration says, because its
// decoder does not pass its epsilon on. The released weights were trained with the one epsilon of
// the configuration, so all norms have it here.
Result<KerasJson> keras_qwen3(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_qwen(config, "qwen3", KerasHeadDim::kStated));
  set_keras_window(out, FERRY_TRY(config.integer("sliding_window_size", kPositionRange)));
  return out;
}

Result<KerasJson> keras_mistral(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_sizes(config, "mistral", {.head_dim = KerasHeadDim::kEither}));
  FERRY_RETURN_IF_ERROR(set_keras_rope(out, config));
  const auto window = FERRY_TRY(keras_window(config, "sliding_window", 512));
  out["sliding_window"] = window ? KerasJson(*window) : KerasJson(nullptr);
  out["tie_word_embeddings"] = false;
  return out;
}

// There is one divisor for each pair of dimensions of a head.
Result<std::vector<double>> su_divisors(const JsonFields& config, std::string_view key,
                                        int64_t head_dim) {
  const auto list = FERRY_TRY(config.numbers(key, kDivisorRange));
  if (!list) return config.bad(key, "is missing");
  if (std::ssize(*list) == head_dim / 2) return *list;
  return config.bad(key, fmt::format("has {} numbers for heads of {}", list->size(), head_dim));
}

// "su" is an older name of longrope. The factor of cos and sin is the default of transformers.
Result<KerasJson> su_scaling(const JsonFields& config, int64_t head_dim) {
  const auto type = FERRY_TRY(config.text("rope_scaling_type"));
  const std::string_view keys[] = {"rope_scaling_short_factor", "rope_scaling_long_factor"};
  if (!type) {
    for (const std::string_view key : keys) {
      if (config.find(key) != nullptr) return config.bad(key, "is set without a rope_scaling_type");
    }
    return nullptr;
  }
  if (*type != "su") {
    return unsupported_keras(config, "rope_scaling_type",
                             fmt::format("is {}; su and null are supported", quoted(*type)));
  }
  KerasJson out = {{"rope_type", "longrope"}};
  out["short_factor"] = FERRY_TRY(su_divisors(config, keys[0], head_dim));
  out["long_factor"] = FERRY_TRY(su_divisors(config, keys[1], head_dim));
  return out;
}

Result<KerasJson> keras_phi3(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_sizes(config, "phi3", {}));
  const auto length = [&](std::string_view key) {
    return config.integer_or(key, kPositionRange, 4096);
  };
  out["max_position_embeddings"] = FERRY_TRY(length("max_sequence_length"));
  out["original_max_position_embeddings"] = FERRY_TRY(length("pretraining_sequence_length"));
  out["rope_theta"] = FERRY_TRY(config.number_or("rope_max_wavelength", kThetaRange, 10000.0));
  out["rope_scaling"] = FERRY_TRY(su_scaling(config, out["head_dim"].get<int64_t>()));
  out["tie_word_embeddings"] = false;
  return out;
}

// Lists 1 for layers with RoPE. KerasHub gives RoPE to layers that are not in the list.
Result<KerasJson> smollm3_rope_layers(const JsonFields& config, int64_t layers) {
  const std::string_view key = "rope_layer_enabled_list";
  const nlohmann::json* list = config.find(key);
  if (list == nullptr || !list->is_array()) return config.bad(key, "is not a list");
  KerasJson out = KerasJson::array();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const nlohmann::json turned = at < list->size() ? (*list)[at] : nlohmann::json(true);
    if (turned != true && turned != false && turned != 0 && turned != 1) {
      return config.bad(key, fmt::format("has {} as element {}", turned.dump(), layer));
    }
    out.push_back(turned == true || turned == 1 ? 1 : 0);
  }
  return out;
}

// KerasHub reads no window, so layers that should have one have full attention there.
Status refuse_other_smollm3(const JsonFields& config) {
  const nlohmann::json* types = config.find("layer_types");
  if (types == nullptr || !types->is_array()) return config.bad("layer_types", "is not a list");
  for (const nlohmann::json& type : *types) {
    if (type == "full_attention") continue;
    return unsupported_keras(config, "layer_types",
                             "has layers other than 'full_attention', for which KerasHub has no "
                             "window");
  }
  if (FERRY_TRY(config.flag_or("attention_bias", false))) {
    return unsupported_keras(config, "attention_bias",
                             "is true: the output projection has no bias in KerasHub, where "
                             "SmolLM3 has one");
  }
  if (FERRY_TRY(config.number_or("partial_rotary_factor", kFactorRange, 1.0)) == 1.0) return {};
  return unsupported_keras(config, "partial_rotary_factor", "is not 1");
}

Result<KerasJson> keras_smollm3(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(keras_sizes(config, "smollm3", {.heads = "num_attention_heads"}));
  FERRY_RETURN_IF_ERROR(refuse_other_smollm3(config));
  const auto layers = out["num_hidden_layers"].get<int64_t>();
  out["max_position_embeddings"] =
      FERRY_TRY(config.required("max_position_embeddings", kPositionRange));
  out["rope_theta"] = FERRY_TRY(config.number_or("rope_theta", kThetaRange, 10000.0));
  out["no_rope_layers"] = FERRY_TRY(smollm3_rope_layers(config, layers));
  out["use_sliding_window"] = false;
  out["mlp_bias"] = FERRY_TRY(config.flag_or("mlp_bias", false));
  out["tie_word_embeddings"] = true;
  return out;
}

constexpr std::string_view kSmolLm3Inert[] = {"attention_dropout"};
constexpr KerasBackbone kLlamaClasses[] = {{"LlamaBackbone", keras_llama},
                                           {"Llama3Backbone", keras_llama},
                                           {"QwenBackbone", keras_qwen2},
                                           {"Qwen3Backbone", keras_qwen3},
                                           {"MistralBackbone", keras_mistral},
                                           {"Phi3Backbone", keras_phi3},
                                           {"SmolLM3Backbone", keras_smollm3, kSmolLm3Inert}};

}  // namespace

std::span<const KerasBackbone> keras_llamas() { return kLlamaClasses; }

}  // namespace ferry::converters
