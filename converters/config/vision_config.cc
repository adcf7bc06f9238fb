#include "converters/config/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr IntRange kSideRange = {1, 1 << 14};

// Returns the side of the square of positions that the tower has.
Result<int64_t> read_positions(const JsonFields& fields, int64_t patch_size) {
  constexpr const char* kPatches = "num_patches";
  const int64_t count = FERRY_TRY(fields.required(kPatches, IntRange{1, 1 << 20}));
  const int64_t side = std::llround(std::sqrt(static_cast<double>(count)));
  if (side * side == count) return side * patch_size;
  return fields.bad(kPatches, fmt::format("is {}, not the square of a number", count));
}

Status check_sizes(const JsonFields& outer, const JsonFields& fields, const VisionConfig& config) {
  if (config.hidden_size % config.num_heads != 0) {
    return fields.bad("num_attention_heads",
                      fmt::format("is {}, which does not divide hidden_size {}", config.num_heads,
                                  config.hidden_size));
  }
  const bool may_leave_edge = config.leaves_edge && config.patch_size <= config.image_size;
  if (!may_leave_edge && config.image_size % config.patch_size != 0) {
    return fields.error(ErrorCode::kUnsupported, "image_size",
                        fmt::format("is {}, not a multiple of patch_size {}: not supported",
                                    config.image_size, config.patch_size));
  }
  if (config.max_patches > 0 || config.grid() % config.shuffle == 0) return {};
  return outer.bad("vision_config", fmt::format("has {} patches a side, which the factor {} of the "
                                                "pixel shuffle does not divide",
                                                config.grid(), config.shuffle));
}

}  // namespace

Result<VisionTower> tower_of(const JsonFields& vision, const VisionType& type) {
  if (type.towers.empty()) return VisionTower{.name = {}, .defaults = type.vision_defaults};
  const std::string name =
      FERRY_TRY(vision.text("model_type")).value_or(std::string(type.towers.front().name));
  std::vector<std::string_view> names;
  for (const VisionTower& tower : type.towers) {
    if (tower.name == name) return tower;
    names.push_back(tower.name);
  }
  return vision.error(ErrorCode::kUnsupported, "model_type",
                      fmt::format("is {}; {} {} supported", quoted(name, 40),
                                  fmt::join(names, ", "), names.size() == 1 ? "is" : "are"));
}

Result<int64_t> read_side(const JsonFields& fields, std::string_view key, IntRange range) {
  const auto sides = FERRY_TRY(fields.integers(key, range));
  if (!sides || sides->empty()) return fields.bad(key, "is missing");
  if (sides->size() > 2 || sides->front() != sides->back()) {
    return fields.error(ErrorCode::kUnsupported, key, "is not square: not supported");
  }
  return sides->front();
}

Status read_feature_layers(const JsonFields& outer, VisionConfig& config) {
  constexpr const char* kKey = "vision_feature_layer";
  const int64_t last = config.num_layers;
  const nlohmann::json* stated = outer.find(kKey);
  const IntRange range = {-last - 1, last};
  if (stated != nullptr && stated->is_array()) {
    config.feature_layers = FERRY_TRY(outer.integers(kKey, range)).value_or(std::vector<int64_t>());
  } else {
    config.feature_layers = {FERRY_TRY(outer.required(kKey, range))};
  }
  if (config.feature_layers.empty()) return outer.bad(kKey, "is an empty list");
  for (int64_t& layer : config.feature_layers) {
    if (layer < 0) layer += last + 1;
  }
  if (config.depth() > 0) return {};
  return outer.error(ErrorCode::kUnsupported, kKey, "asks for no layer of the tower");
}

Status read_image_token(const JsonFields& outer, VisionConfig& config) {
  const bool renamed = outer.states("image_token_id");
  config.image_token_id = FERRY_TRY(
      outer.required(renamed ? "image_token_id" : "image_token_index", IntRange{0, INT32_MAX}));
  return {};
}

Status read_vision(const JsonFields& outer, const JsonFields& vision, const VisionMatch& match,
                   VisionConfig& config) {
  if (match.type->sections != nullptr || match.type->reads_all ||
      FERRY_TRY(tower_of(vision, *match.type)).any_shape) {
    return match.type->read(outer, vision, config);
  }
  config.hidden_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  config.intermediate_size = FERRY_TRY(vision.required("intermediate_size", kSizeRange));
  config.num_layers = FERRY_TRY(vision.required("num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(vision.required("num_attention_heads", kHeadRange));
  config.channels = FERRY_TRY(vision.required("num_channels", IntRange{1, 64}));
  if (config.channels != 3) {
    return vision.error(ErrorCode::kUnsupported, "num_channels",
                        fmt::format("is {}: images have 3 channels", config.channels));
  }
  config.patch_size = FERRY_TRY(read_side(vision, "patch_size", kSideRange));
  config.image_size =
      FERRY_TRY(match.type->patch_lists ? read_positions(vision, config.patch_size)
                                        : read_side(vision, "image_size", kSideRange));
  config.norm_eps = FERRY_TRY(vision.number_or("layer_norm_eps", kEpsRange, 1e-6));
  config.activation = FERRY_TRY(read_activation(vision, "hidden_act", "gelu"));
  FERRY_RETURN_IF_ERROR(match.type->read(outer, vision, config));
  return check_sizes(outer, vision, config);
}

}  // namespace ferry::converters
