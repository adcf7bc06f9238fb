// read_layer_types() determines the token mixer of each layer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr int64_t kDefaultFullAttentionInterval = 4;

Status read_linear_attention(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  LinearAttentionConfig& linear = config.linear;
  const auto size = [&](std::string_view key, IntRange range, int64_t derived) -> Result<int64_t> {
    return type.linear_from_heads ? fields.integer_or(key, range, derived)
                                  : fields.required(key, range);
  };
  linear.key_heads = FERRY_TRY(size("linear_num_key_heads", kHeadRange, config.num_heads));
  linear.value_heads = FERRY_TRY(size("linear_num_value_heads", kHeadRange, config.num_heads));
  const int64_t key_dim = 3 * config.hidden_size / (4 * linear.key_heads);
  linear.key_dim = FERRY_TRY(size("linear_key_head_dim", kHeadDimRange, key_dim));
  linear.value_dim = FERRY_TRY(size("linear_value_head_dim", kHeadDimRange, 2 * linear.key_dim));
  linear.conv_kernel = FERRY_TRY(fields.required("linear_conv_kernel_dim", kConvRange));
  if (linear.value_heads % linear.key_heads == 0) return {};
  return fields.bad("linear_num_value_heads", fmt::format("is {}, not a multiple of {} key heads",
                                                          linear.value_heads, linear.key_heads));
}

Result<std::optional<int64_t>> read_window(const JsonFields& fields, const ModelType& type) {
  if (type.window == WindowRule::kNever) return std::nullopt;
  const bool asked =
      type.window == WindowRule::kFromLayer || type.window == WindowRule::kEvenBefore ||
      type.window == WindowRule::kWhereNoRope || type.window == WindowRule::kAllIfUsed;
  if (asked && !FERRY_TRY(fields.flag_or("use_sliding_window", false))) return std::nullopt;
  // A window of 0 is allowed: halved, it reaches as far as a window of 1, to the token itself.
  const bool by_key = type.two_way == TwoWayRule::kHalfWindow || type.two_way == TwoWayRule::kNamed;
  const bool halved =
      only_encodes(type.two_way) || (by_key && FERRY_TRY(asks_both_ways(fields, type)));
  return fields.integer("sliding_window", {halved ? 0 : kPositionRange.min, kPositionRange.max});
}

// Returns which layers have RoPE. In no_rope_layers, 1 means that the layer has it.
Result<std::vector<bool>> read_rope_layers(const JsonFields& fields, const ModelType& type,
                                           const ModelConfig& config) {
  std::vector<bool> turned(static_cast<size_t>(config.num_layers),
                           type.rope_layers != RopeLayers::kNone);
  if (type.rope_layers == RopeLayers::kIfNamed) {
    const auto named = FERRY_TRY(fields.text("position_embedding_type"));
    turned.assign(turned.size(), named == "rope");
  }
  if (type.rope_layers == RopeLayers::kUnlessAlibi) {
    turned.assign(turned.size(), !FERRY_TRY(fields.flag_or("alibi", false)));
  }
  if (type.rope_layers == RopeLayers::kIfUsed) {
    turned.assign(turned.size(), FERRY_TRY(fields.flag_or("use_mem_rope", false)));
  }
  const bool if_any = type.rope_layers == RopeLayers::kListedIfAny;
  if (type.rope_layers != RopeLayers::kListed && !if_any) return turned;
  auto listed = FERRY_TRY(fields.integers("no_rope_layers", {0, 1}));
  if (if_any && listed && listed->empty()) listed.reset();
  if (listed && std::ssize(*listed) < config.num_layers) {
    return fields.bad("no_rope_layers", fmt::format("has {} elements for {} layers", listed->size(),
                                                    config.num_layers));
  }
  const int64_t interval = FERRY_TRY(
      fields.integer_or("no_rope_layer_interval", kLayerRange, kDefaultFullAttentionInterval));
  for (size_t layer = 0; layer < turned.size(); ++layer) {
    turned[layer] =
        listed ? (*listed)[layer] == 1 : (static_cast<int64_t>(layer) + 1) % interval != 0;
  }
  return turned;
}

// Returns the number that the rule counts layers by. A list of layer types replaces it.
Result<int64_t> rule_number(const JsonFields& fields, const ModelType& type,
                            const ModelConfig& config) {
  const bool pattern = type.window == WindowRule::kPattern || type.window == WindowRule::kFirstFull;
  const bool most = type.window == WindowRule::kFromLayer || type.window == WindowRule::kEvenBefore;
  if (!pattern && !most) return 1;
  const std::string_view key = pattern ? "sliding_window_pattern" : "max_window_layers";
  if (type.lists_layers && fields.find("layer_types") != nullptr) {
    (void)fields.find(key);  // so that it does not count as unused
    return 1;
  }
  if (pattern) return fields.integer_or(key, kLayerRange, 1);
  return fields.integer_or(key, {0, INT32_MAX}, config.num_layers);
}

// Whether a layer has a sliding window if the config states one.
bool slides(WindowRule rule, int64_t layer, int64_t number, bool has_rope) {
  switch (rule) {
    case WindowRule::kNever:
      return false;
    case WindowRule::kFromLayer:
      return layer >= number;
    case WindowRule::kEvenBefore:
      return layer % 2 == 0 && layer < number;
    case WindowRule::kPattern:
      return (layer + 1) % number != 0;
    case WindowRule::kFirstFull:
      return layer % number != 0;
    case WindowRule::kWhereNoRope:
      return !has_rope;
    case WindowRule::kChunks:
      return has_rope;
    case WindowRule::kAll:
    case WindowRule::kAllIfUsed:
    case WindowRule::kGlobalLocal:
      break;
  }
  return true;
}

// Returns linear attention in all but every full_attention_interval-th layer.
Result<std::vector<LayerType>> hybrid_layers(const JsonFields& fields, const ModelConfig& config) {
  const int64_t interval = FERRY_TRY(
      fields.integer_or("full_attention_interval", kLayerRange, kDefaultFullAttentionInterval));
  std::vector<LayerType> types;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    types.push_back((layer + 1) % interval != 0 ? LayerType::kLinearAttention
                                                : LayerType::kFullAttention);
  }
  return types;
}

// Reads attention_types of GPT-Neo: each item is a list of names, and how often it is repeated.
Result<std::vector<LayerType>> global_local_layers(const JsonFields& fields,
                                                   const ModelConfig& config) {
  constexpr std::string_view kKey = "attention_types";
  const nlohmann::json* stated = fields.find(kKey);
  const nlohmann::json usual = nlohmann::json::parse(R"([[["global", "local"], 12]])");
  const nlohmann::json& items = stated == nullptr ? usual : *stated;
  const auto is_item = [](const nlohmann::json& item) {
    return item.is_array() && item.size() == 2 && item[0].is_array() && !item[0].empty() &&
           item[1].is_number_unsigned() && item[1] <= kLayerRange.max;
  };
  if (!items.is_array() || !std::ranges::all_of(items, is_item)) {
    return fields.bad(kKey, "is not a list of names and counts");
  }
  std::vector<LayerType> types;
  for (const nlohmann::json& item : items) {
    for (uint64_t i = 0; i < item[1].get<uint64_t>() && std::ssize(types) <= config.num_layers;
         ++i) {
      for (const nlohmann::json& name : item[0]) {
        if (name != "global" && name != "local") {
          return fields.error(ErrorCode::kUnsupported, kKey, "has another name than global, local");
        }
        types.push_back(name == "local" ? LayerType::kSlidingAttention : LayerType::kFullAttention);
      }
    }
  }
  if (std::ssize(types) == config.num_layers) return types;
  return fields.bad(kKey, fmt::format("does not make {} layers", config.num_layers));
}

// The first configs of LFM2 list the layers with attention. Without a list all layers have it.
Result<std::vector<LayerType>> conv_layers(const JsonFields& fields, const ModelConfig& config) {
  std::vector<LayerType> types(static_cast<size_t>(config.num_layers), LayerType::kFullAttention);
  const auto full = FERRY_TRY(fields.integers("full_attn_idxs", {0, kLayerRange.max}));
  if (!full) return types;
  std::ranges::fill(types, LayerType::kShortConv);
  for (int64_t layer : *full) {
    if (layer < config.num_layers) types[static_cast<size_t>(layer)] = LayerType::kFullAttention;
  }
  return types;
}

Result<std::vector<LayerType>> derived_layer_types(const JsonFields& fields, const ModelType& type,
                                                   const ModelConfig& config, bool window) {
  if (type.layers != nullptr) return type.layers(fields, config);
  if (type.hybrid) return hybrid_layers(fields, config);
  if (type.convs) return conv_layers(fields, config);
  if (type.window == WindowRule::kGlobalLocal) return global_local_layers(fields, config);
  if (type.mamba) {
    return std::vector<LayerType>(static_cast<size_t>(config.num_layers), LayerType::kMamba);
  }
  const int64_t number = FERRY_TRY(rule_number(fields, type, config));
  std::vector<LayerType> types;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool has_rope = config.rope_layers[static_cast<size_t>(layer)];
    types.push_back(window && slides(type.window, layer, number, has_rope)
                        ? LayerType::kSlidingAttention
                        : LayerType::kFullAttention);
  }
  return types;
}

// Linear attention and Mamba share their names in configs. The model type tells which one is meant.
LayerType recurrent(const ModelType& type) {
  return type.mamba ? LayerType::kMamba : LayerType::kLinearAttention;
}

Result<std::vector<LayerType>> listed_layer_types(const JsonFields& fields, const ModelType& type,
                                                  const nlohmann::json& list) {
  const bool chunks = type.window == WindowRule::kChunks;
  const std::array<std::pair<std::string_view, LayerType>, 7> kNames = {{
      {"full_attention", LayerType::kFullAttention},
      {"attention", LayerType::kFullAttention},
      {chunks ? "chunked_attention" : "sliding_attention", LayerType::kSlidingAttention},
      {"linear_attention", recurrent(type)},
      {"conv", LayerType::kShortConv},
      {"mamba", recurrent(type)},
      {"hybrid", LayerType::kMambaAndAttention},
  }};
  std::vector<LayerType> types;
  if (!list.is_array()) return fields.bad("layer_types", "is not an array");
  for (const nlohmann::json& item : list) {
    if (!item.is_string()) return fields.bad("layer_types", "has an element that is not a string");
    const std::string& name = item.get_ref<const std::string&>();
    const auto* known = std::find_if(kNames.begin(), kNames.end(),
                                     [&](const auto& row) { return row.first == name; });
    if (known == kNames.end()) {
      return fields.error(ErrorCode::kUnsupported, "layer_types",
                          fmt::format("has the unknown type {}", quoted(name)));
    }
    types.push_back(known->second);
  }
  return types;
}

}  // namespace

Result<bool> asks_both_ways(const JsonFields& fields, const ModelType& type) {
  const std::string_view key = "use_bidirectional_attention";
  if (type.two_way != TwoWayRule::kNamed) return fields.flag_or(key, false);
  const auto named = FERRY_TRY(fields.text(key));
  if (!named || *named == "vision") return false;
  if (*named == "all") return true;
  return fields.bad(key, fmt::format("is {}; \"all\" and \"vision\" are known", quoted(*named)));
}

Status read_layer_types(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  config.rope_layers = FERRY_TRY(read_rope_layers(fields, type, config));
  const auto window = FERRY_TRY(read_window(fields, type));
  config.layer_types = FERRY_TRY(derived_layer_types(fields, type, config, window.has_value()));
  if (const nlohmann::json* list = fields.find("layer_types")) {
    auto listed = FERRY_TRY(listed_layer_types(fields, type, *list));
    if (std::ssize(listed) != config.num_layers) {
      return fields.bad("layer_types", fmt::format("has {} elements for {} layers", listed.size(),
                                                   config.num_layers));
    }
    // The reference ignores the list here: following it would build another model.
    if (!type.lists_layers && listed != config.layer_types) {
      return fields.error(ErrorCode::kUnsupported, "layer_types",
                          fmt::format("differs from what {} does", quoted(config.text_type)));
    }
    config.layer_types = std::move(listed);
  }
  const bool or_dense = type.rope_layers == RopeLayers::kSlidingOrDense;
  const bool only_sliding = type.rope_layers == RopeLayers::kSliding || or_dense ||
                            (type.rope_layers == RopeLayers::kSlidingIfAny && window);
  for (size_t i = 0; i < config.layer_types.size() && only_sliding; ++i) {
    const bool dense =
        or_dense && config.number(kDenseRope) != 0 && !config.has_experts(static_cast<int64_t>(i));
    config.rope_layers[i] = dense || config.layer_types[i] == LayerType::kSlidingAttention;
  }
  const auto has = [&](LayerType wanted) {
    return std::ranges::count(config.layer_types, wanted) > 0;
  };
  if (has(LayerType::kLinearAttention)) {
    if (!type.hybrid) {
      return fields.error(ErrorCode::kUnsupported, "layer_types", "has linear attention");
    }
    FERRY_RETURN_IF_ERROR(read_linear_attention(fields, type, config));
  }
  if (has(LayerType::kMambaAndAttention) && !type.mamba) {
    return fields.error(ErrorCode::kUnsupported, "layer_types", "has Mamba beside attention");
  }
  if (has(LayerType::kShortConv) && !type.convs) {
    return fields.error(ErrorCode::kUnsupported, "layer_types", "has short convolutions");
  }
  if (has(LayerType::kSlidingAttention)) {
    if (type.window == WindowRule::kNever) {
      return fields.error(ErrorCode::kUnsupported, "layer_types", "has sliding attention");
    }
    if (!window) {
      return fields.bad("sliding_window",
                        "is not set or not used, but layer_types has sliding attention");
    }
    config.sliding_window = window;
    if (type.window == WindowRule::kChunks) config.numbers[kChunkedWindows] = 1;
  }
  return {};
}

}  // namespace ferry::converters
