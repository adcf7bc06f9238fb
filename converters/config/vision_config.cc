#include "converters/config/model_config.h"

#include <fmt/format.h>

#include <cmath>

#include "converters/config/config_parts.h"

namespace ferry::converters {
namespace {

constexpr IntRange kSideRange = {1, 1 << 14};

// Reads a side of a square: a number, or a list of two equal ones.
Result<int64_t> read_side(const JsonFields& fields, std::string_view key) {
  const auto sides = FERRY_TRY(fields.integers(key, kSideRange));
  if (!sides || sides->empty()) return fields.bad(key, "is missing");
  if (sides->size() > 2 || sides->front() != sides->back()) {
    return fields.error(ErrorCode::kUnsupported, key, "is not square: not supported");
  }
  return sides->front();
}

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
  if (config.image_size % config.patch_size != 0) {
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

Status read_vision(const JsonFields& outer, const JsonFields& vision, const VisionMatch& match,
                   VisionConfig& config) {
  if (match.type->sections != nullptr) return match.type->read(outer, vision, config);
  config.hidden_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  config.intermediate_size = FERRY_TRY(vision.required("intermediate_size", kSizeRange));
  config.num_layers = FERRY_TRY(vision.required("num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(vision.required("num_attention_heads", kHeadRange));
  config.channels = FERRY_TRY(vision.required("num_channels", IntRange{1, 64}));
  if (config.channels != 3) {
    return vision.error(ErrorCode::kUnsupported, "num_channels",
                        fmt::format("is {}: images have 3 channels", config.channels));
  }
  config.patch_size = FERRY_TRY(read_side(vision, "patch_size"));
  config.image_size = FERRY_TRY(match.type->patch_lists ? read_positions(vision, config.patch_size)
                                                        : read_side(vision, "image_size"));
  config.norm_eps = FERRY_TRY(vision.number_or("layer_norm_eps", kEpsRange, 1e-6));
  config.activation = FERRY_TRY(read_activation(vision, "hidden_act", "gelu"));
  FERRY_RETURN_IF_ERROR(match.type->read(outer, vision, config));
  return check_sizes(outer, vision, config);
}

}  // namespace ferry::converters
