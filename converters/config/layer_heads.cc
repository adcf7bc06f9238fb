#include "converters/config/layer_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace ferry::converters {
namespace {

// Reads the heads of one layer in per_layer_config. The reference reads no other key there, and
// fails where one differs from the key of the whole model.
Status read_heads(const JsonFields& layer, HeadSizes& heads) {
  heads.kv_heads = FERRY_TRY(layer.integer_or("num_key_value_heads", kHeadRange, heads.kv_heads));
  heads.dim = FERRY_TRY(layer.integer_or("head_dim", kHeadDimRange, heads.dim));
  const auto known = static_cast<size_t>(layer.states("num_key_value_heads")) +
                     static_cast<size_t>(layer.states("head_dim"));
  for (const char* key : {"num_key_value_heads", "head_dim"}) {
    FERRY_RETURN_IF_ERROR(require_value(layer, key));
  }
  if (layer.size() == known) return {};
  return layer.error(ErrorCode::kUnsupported, "",
                     "has other keys than head_dim and num_key_value_heads: not supported");
}

Status read_stated_heads(const JsonFields& fields, const nlohmann::json& stated,
                         ModelConfig& config) {
  const std::string_view key = "per_layer_config";
  if (!stated.is_object()) return fields.bad(key, "is no object");
  const JsonFields parts = *FERRY_TRY(fields.object(key));
  std::vector<HeadSizes> heads(config.layer_types.size(), {config.num_kv_heads, config.head_dim});
  for (const auto& item : stated.items()) {
    const std::string& name = item.key();
    size_t layer = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data(), end, layer);
    if (error != std::errc() || rest != end || layer >= heads.size()) {
      return fields.bad(
          key, fmt::format("has a layer that the model lacks: {} of {}", name, heads.size()));
    }
    const auto part = FERRY_TRY(parts.object(name));
    if (!part) return parts.bad(name, "is null");
    FERRY_RETURN_IF_ERROR(read_heads(*part, heads[layer]));
  }
  std::map<LayerType, HeadSizes> of_type;
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    const auto [first, is_new] = of_type.emplace(config.layer_types[layer], heads[layer]);
    if (is_new || first->second == heads[layer]) continue;
    return fields.bad(key, fmt::format("has other heads in layer {} than in an earlier layer of "
                                       "its type",
                                       layer));
  }
  if (const auto sliding = of_type.find(LayerType::kSlidingAttention); sliding != of_type.end()) {
    config.num_kv_heads = sliding->second.kv_heads;
    config.head_dim = sliding->second.dim;
  }
  config.full_heads = of_type.at(LayerType::kFullAttention);
  return {};
}

}  // namespace

Status require_value(const JsonFields& fields, std::string_view key) {
  if (!fields.states(key) || fields.find(key) != nullptr) return {};
  return fields.bad(key, "is null");
}

Result<bool> read_layer_heads(const JsonFields& fields, ModelConfig& config) {
  config.layer_types.back() = LayerType::kFullAttention;
  if (std::ranges::count(config.layer_types, LayerType::kSlidingAttention) == 0) {
    config.sliding_window.reset();
  }
  if (const nlohmann::json* stated = fields.find("per_layer_config")) {
    FERRY_RETURN_IF_ERROR(read_stated_heads(fields, *stated, config));
    return true;
  }
  return fields.states("per_layer_config");
}

}  // namespace ferry::converters
