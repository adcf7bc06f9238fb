#include "dialects/keras/backbones.h"

#include <fmt/format.h>

#include <utility>

#include "converters/config/json_fields.h"

namespace ferry::converters {
namespace {

Result<int64_t> head_dim_of(const JsonFields& config, const KerasSizes& sizes) {
  // A class without the option must not read it, because config.cc refuses options that no
  // translator has read.
  if (sizes.head_dim == KerasHeadDim::kStated ||
      (sizes.head_dim == KerasHeadDim::kEither && config.find("head_dim") != nullptr)) {
    return config.required("head_dim", kHeadDimRange);
  }
  const int64_t hidden = FERRY_TRY(config.required("hidden_dim", kSizeRange));
  return hidden / FERRY_TRY(keras_even_heads(config, sizes.heads));
}

}  // namespace

Failure unsupported_keras(const JsonFields& config, std::string_view key, std::string_view what) {
  return config.error(ErrorCode::kUnsupported, key, what);
}

Result<int64_t> keras_even_heads(const JsonFields& config, std::string_view key) {
  const int64_t hidden = FERRY_TRY(config.required("hidden_dim", kSizeRange));
  const int64_t heads = FERRY_TRY(config.required(key, kHeadRange));
  if (hidden % heads == 0) return heads;
  return config.bad(key, fmt::format("is {}, which does not divide hidden_dim {}", heads, hidden));
}

// FERRY_TRY is not used in braced lists: members that were made before an error returns would not
// be destroyed.
Result<KerasJson> keras_sizes(const JsonFields& config, const char* model_type,
                              const KerasSizes& sizes) {
  const int64_t heads = FERRY_TRY(config.required(sizes.heads, kHeadRange));
  const int64_t kv_heads = FERRY_TRY(config.required("num_key_value_heads", kHeadRange));
  if (heads % kv_heads != 0) {
    return config.bad("num_key_value_heads",
                      fmt::format("is {}, which does not divide {} heads", kv_heads, heads));
  }
  KerasJson out = {{"model_type", model_type}};
  out["vocab_size"] = FERRY_TRY(config.required("vocabulary_size", kSizeRange));
  out["hidden_size"] = FERRY_TRY(config.required("hidden_dim", kSizeRange));
  if (sizes.mlp) {
    out["intermediate_size"] = FERRY_TRY(config.required("intermediate_dim", kSizeRange));
  }
  out["num_hidden_layers"] = FERRY_TRY(config.required("num_layers", kLayerRange));
  out["num_attention_heads"] = heads;
  out["num_key_value_heads"] = kv_heads;
  out["head_dim"] = FERRY_TRY(head_dim_of(config, sizes));
  out["max_position_embeddings"] = kUnstatedPositions;
  out["rms_norm_eps"] = FERRY_TRY(config.number_or("layer_norm_epsilon", kEpsRange, 1e-6));
  return out;
}

KerasJson keras_linear_scaling(double factor) {
  if (factor == 1.0) return nullptr;
  return {{"rope_type", "linear"}, {"factor", factor}};
}

Status set_keras_rope(KerasJson& out, const JsonFields& config) {
  out["rope_theta"] = FERRY_TRY(config.number_or("rope_max_wavelength", kThetaRange, 10000.0));
  const double scaling = FERRY_TRY(config.number_or("rope_scaling_factor", kFactorRange, 1.0));
  out["rope_scaling"] = keras_linear_scaling(scaling);
  return {};
}

Result<std::optional<int64_t>> keras_window(const JsonFields& config, std::string_view key,
                                            int64_t otherwise) {
  if (!config.states(key)) return otherwise;
  return config.integer(key, kPositionRange);
}

void set_keras_window(KerasJson& out, std::optional<int64_t> window) {
  out["use_sliding_window"] = window.has_value();
  out["sliding_window"] = nullptr;
  out["max_window_layers"] = out["num_hidden_layers"];
  if (!window) return;
  out["sliding_window"] = *window;
  out["max_window_layers"] = 0;
}

Status set_keras_experts(KerasJson& out, const JsonFields& config, const char* key, IntRange range,
                         int64_t default_top) {
  const int64_t experts = FERRY_TRY(config.required("num_experts", range));
  const int64_t top = FERRY_TRY(config.integer_or("top_k", {1, kExpertRange.max}, default_top));
  if (experts > 0 && top > experts) {
    return config.bad("top_k", fmt::format("is {} of {} experts", top, experts));
  }
  out[key] = experts;
  out["num_experts_per_tok"] = top;
  return {};
}

KerasJson keras_layer_types(const KerasJson& out, bool (*slides)(int64_t layer)) {
  KerasJson types = KerasJson::array();
  for (int64_t layer = 0; layer < out["num_hidden_layers"].get<int64_t>(); ++layer) {
    types.push_back(slides(layer) ? "sliding_attention" : "full_attention");
  }
  return types;
}

}  // namespace ferry::converters
