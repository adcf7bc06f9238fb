// LLaVA: a tower of CLIP or SigLIP over square images, or of Pixtral over images of any shape, of
// which any layers give the features, an MLP, and a text decoder of another family. LLaVA-NeXT: the
// same over the tiles of a picture in one of several resolutions, with a newline behind each row of
// their features. LLaVA-OneVision: the same, with fewer features where these are too many. Source:
// transformers, models/llava/modeling_llava.py,
// models/llava_next/modeling_llava_next.py and models/clip/modeling_clip.py.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/text.h"

namespace ferry::converters::families::llava {
namespace {

constexpr const char* kStrategy = "vision_feature_select_strategy";
constexpr const char* kPinpoints = "image_grid_pinpoints";
constexpr const char* kAspect = "vision_aspect_ratio";
constexpr const char* kOnevisionDefaults =
    R"({"image_token_index": 151646, "video_token_index": 151647, "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full"})";
constexpr const char* kNextDefaults =
    R"({"image_token_index": 32000, "vision_feature_layer": -2,
        "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]})";

// With the strategy "default" the first row is no feature, whatever the tower has there.
Status read_strategy(const JsonFields& outer, VisionConfig& config) {
  const std::string strategy = FERRY_TRY(outer.text(kStrategy)).value_or("default");
  config.drops_first = strategy == "default";
  if (config.drops_first || strategy == "full") return {};
  return outer.error(ErrorCode::kUnsupported, kStrategy,
                     fmt::format("is {}; default and full are supported", quoted(strategy)));
}

Status read_projector(const JsonFields& outer, VisionConfig& config) {
  config.connector = Connector::kMlp;
  config.connector_norm = false;
  config.connector_bias = FERRY_TRY(outer.flag_or("multimodal_projector_bias", true));
  config.connector_activation = FERRY_TRY(read_activation(outer, "projector_hidden_act", "gelu"));
  FERRY_RETURN_IF_ERROR(read_image_token(outer, config));
  return read_feature_layers(outer, config);
}

// A tower of Pixtral has no class token, whose place the strategy "default" would take.
Status read_any_shape(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  FERRY_RETURN_IF_ERROR(read_pixtral(vision, config));
  FERRY_RETURN_IF_ERROR(read_strategy(outer, config));
  if (config.drops_first) {
    return outer.error(ErrorCode::kUnsupported, kStrategy,
                       "is default; of a tower of pixtral full is supported");
  }
  return read_projector(outer, config);
}

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  const std::string tower = FERRY_TRY(vision.text("model_type")).value_or("");
  if (tower == kPixtralTower.name) return read_any_shape(outer, vision, config);
  const bool clip = tower != kSiglipTower.name;
  config.class_token = config.pre_norm = clip;
  config.patch_bias = !clip;
  config.leaves_edge = true;
  FERRY_RETURN_IF_ERROR(read_strategy(outer, config));
  return read_projector(outer, config);
}

Failure bad_pinpoints(const JsonFields& outer, ErrorCode code, const std::string& what) {
  return outer.error(code, kPinpoints, what);
}

// Reads a height and a width.
Result<Extent> read_resolution(const JsonFields& outer, const nlohmann::json& sides, int64_t tile) {
  const bool pair = sides.is_array() && sides.size() == 2;
  const auto side = [&](size_t i) {
    const bool whole = pair && sides[i].is_number_unsigned() &&
                       sides[i] <= static_cast<unsigned>(kMaxResolutionSide);
    return whole ? sides[i].get<int64_t>() : int64_t{0};
  };
  const Extent size = {side(0), side(1)};
  if (size.rows < 1 || size.columns < 1) {
    return bad_pinpoints(outer, ErrorCode::kBadInput,
                         fmt::format("has a resolution that is not a height and a width up to {}",
                                     kMaxResolutionSide));
  }
  if (is_resolution(size, tile)) return size;
  return bad_pinpoints(outer, ErrorCode::kUnsupported,
                       fmt::format("has {} x {}, which is not 1 to {} tiles of image_size {}: not "
                                   "supported",
                                   size.rows, size.columns, kMaxResolutionTiles, tile));
}

Status read_resolutions(const JsonFields& outer, VisionConfig& config) {
  const nlohmann::json* list = outer.find(kPinpoints);
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxResolutions) {
    return bad_pinpoints(outer, ErrorCode::kBadInput,
                         fmt::format("is not a list of 1 to {} resolutions", kMaxResolutions));
  }
  for (const nlohmann::json& sides : *list) {
    config.tiled->resolutions.push_back(
        FERRY_TRY(read_resolution(outer, sides, config.image_size)));
  }
  return {};
}

// The features of a tile are a square: those of the patches, without the class token.
Status read_tiled_tower(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  config.tiled.emplace();
  FERRY_RETURN_IF_ERROR(read(outer, vision, config));
  if (config.drops_first != config.class_token) {
    return outer.error(ErrorCode::kUnsupported, kStrategy,
                       config.class_token
                           ? "is full; of a tower with a class token default is supported"
                           : "is default; of a tower without a class token full is supported");
  }
  return {};
}

Status read_next(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  FERRY_RETURN_IF_ERROR(read_tiled_tower(outer, vision, config));
  return read_resolutions(outer, config);
}

// Resolutions have a default, which a null stands for too.
Status read_onevision(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  const std::string aspect = FERRY_TRY(outer.text(kAspect)).value_or("");
  const auto most = aspect.empty() ? kDefaultMostTiles : most_tiles_of(aspect);
  if (!most) {
    return outer.error(ErrorCode::kUnsupported, kAspect,
                       fmt::format("is {}; anyres_max_N is supported", quoted(aspect, 40)));
  }
  FERRY_RETURN_IF_ERROR(read_tiled_tower(outer, vision, config));
  config.tiled->most_tiles = *most;
  const char* video = outer.states("video_token_id") ? "video_token_id" : "video_token_index";
  config.video_token_id = FERRY_TRY(outer.integer(video, IntRange{0, INT32_MAX}));
  if (outer.find(kPinpoints) != nullptr) return read_resolutions(outer, config);
  config.tiled->resolutions = onevision_resolutions();
  const bool whole = std::ranges::all_of(config.tiled->resolutions, [&](const Extent& size) {
    return is_resolution(size, config.image_size);
  });
  if (whole) return {};
  return bad_pinpoints(outer, ErrorCode::kUnsupported,
                       "has tiles of 384 pixels by default, which image_size is not");
}

std::vector<KeyRule> newline_rules(const std::string& prefix, const ModelConfig& config) {
  if (!config.vision->tiled) return {};
  const int64_t width = config.hidden_size;
  return {reshape_rule("newline", prefix + "image_newline", "vision.newline", {width},
                       {1, 1, width}, width)};
}

// Keys are as transformers saves them or as in memory. Up to version 4 the tower has one more name.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat(
        {all,
         tower_rules(prefix + "multi_modal_projector.", 0,
                     {{"linear_1", "vision.connector.w1"}, {"linear_2", "vision.connector.w2"}}),
         newline_rules(prefix, config)});
    if (config.vision->any_shape) {
      all = concat({all, pixtral_rules(prefix + "vision_tower.", *config.vision)});
      continue;
    }
    for (const std::string name : {"vision_tower.", "vision_tower.vision_model."}) {
      all = concat({all, siglip_rules(prefix + name, *config.vision)});
    }
  }
  return all;
}

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "llava",
               .text_type = "llama",
               .tied = false,
               .defaults = R"({"image_token_index": 32000, "vision_feature_layer": -2})",
               .read = read,
               .towers = {kClipTower, kSiglipTower, kPixtralTower},
               .text_ties = true,
               .plain_head = true},
              {.name = "llava_next",
               .text_type = "llama",
               .tied = false,
               .defaults = kNextDefaults,
               .read = read_next,
               .towers = {kClipTower, kSiglipTower},
               .text_ties = true,
               .plain_head = true},
              {.name = "llava_onevision",
               .text_type = "qwen2",
               .tied = false,
               .defaults = kOnevisionDefaults,
               .read = read_onevision,
               .towers = {kSiglipTower, kClipTower},
               .text_ties = true,
               .plain_head = true}},
    .text_types = {"llama", "mistral", "qwen2", "qwen3", "phi3", "granite"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::llava
