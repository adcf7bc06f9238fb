// LLaVA: a tower of CLIP or SigLIP over square images, of which any layers give the features, an
// MLP, and a text decoder of another family. Source: transformers, models/llava/modeling_llava.py
// and models/clip/modeling_clip.py.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/text.h"

namespace ferry::converters::families::llava {
namespace {

// Reads the states that are features: a number or a list. Negative numbers count from the last.
Status read_layers(const JsonFields& outer, VisionConfig& config) {
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

// With the strategy "default" the first row is no feature, whatever the tower has there.
Status read_strategy(const JsonFields& outer, VisionConfig& config) {
  constexpr const char* kKey = "vision_feature_select_strategy";
  const std::string strategy = FERRY_TRY(outer.text(kKey)).value_or("default");
  config.drops_first = strategy == "default";
  if (config.drops_first || strategy == "full") return {};
  return outer.error(ErrorCode::kUnsupported, kKey,
                     fmt::format("is {}; default and full are supported", quoted(strategy)));
}

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  const bool clip = FERRY_TRY(vision.text("model_type")).value_or("") != kSiglipTower.name;
  config.class_token = config.pre_norm = clip;
  config.patch_bias = !clip;
  config.connector = Connector::kMlp;
  config.connector_norm = false;
  config.connector_bias = FERRY_TRY(outer.flag_or("multimodal_projector_bias", true));
  config.connector_activation = FERRY_TRY(read_activation(outer, "projector_hidden_act", "gelu"));
  // The reference has both names for one number; this one counts.
  const bool renamed = outer.states("image_token_id");
  config.image_token_id = FERRY_TRY(
      outer.required(renamed ? "image_token_id" : "image_token_index", IntRange{0, INT32_MAX}));
  FERRY_RETURN_IF_ERROR(read_strategy(outer, config));
  return read_layers(outer, config);
}

// Keys are as transformers saves them or as in memory. Up to version 4 the tower has one more name.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, tower_rules(prefix + "multi_modal_projector.", 0,
                                   {{"linear_1", "vision.connector.w1"},
                                    {"linear_2", "vision.connector.w2"}})});
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
               .towers = {kClipTower, kSiglipTower},
               .text_ties = true}},
    .text_types = {"llama", "mistral", "qwen2", "qwen3", "phi3"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::llava
