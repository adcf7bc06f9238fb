// LLaVA: a tower of CLIP or SigLIP over square images, or of Pixtral over images of any shape, of
// which any layers give the features, an MLP, and a text decoder of another family. Source:
// transformers, models/llava/modeling_llava.py and models/clip/modeling_clip.py.

#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/text.h"

namespace ferry::converters::families::llava {
namespace {

constexpr const char* kStrategy = "vision_feature_select_strategy";

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
  FERRY_RETURN_IF_ERROR(read_strategy(outer, config));
  return read_projector(outer, config);
}

// Keys are as transformers saves them or as in memory. Up to version 4 the tower has one more name.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, tower_rules(prefix + "multi_modal_projector.", 0,
                                   {{"linear_1", "vision.connector.w1"},
                                    {"linear_2", "vision.connector.w2"}})});
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
               .text_ties = true}},
    .text_types = {"llama", "mistral", "qwen2", "qwen3", "phi3"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::llava
