// Mistral Small 3.1 and its successors, and Ministral 3, with images: a tower of Pixtral over
// images of any shape, a linear over the patches of each block, an MLP, and a text decoder of
// Mistral. Source: transformers, models/mistral3/modeling_mistral3.py.

#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::mistral3 {
namespace {

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  FERRY_RETURN_IF_ERROR(read_pixtral(vision, config));
  config.connector = Connector::kLinearMerger;
  config.connector_bias = FERRY_TRY(outer.flag_or("multimodal_projector_bias", false));
  config.connector_activation = FERRY_TRY(read_activation(outer, "projector_hidden_act", "gelu"));
  config.shuffle = FERRY_TRY(outer.required("spatial_merge_size", IntRange{1, 16}));
  if (config.shuffle * config.shuffle * config.hidden_size > kSizeRange.max) {
    return outer.bad("spatial_merge_size",
                     fmt::format("is {}: blocks of patches of {} are too wide", config.shuffle,
                                 config.hidden_size));
  }
  FERRY_RETURN_IF_ERROR(read_image_token(outer, config));
  FERRY_RETURN_IF_ERROR(read_feature_layers(outer, config));
  if (config.feature_layers.size() == 1) return {};
  return outer.error(ErrorCode::kUnsupported, "vision_feature_layer",
                     "has several layers, of which the reference can merge no patches");
}

// Keys are as transformers saves them or as in memory.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    const std::string projector = prefix + "multi_modal_projector.";
    all = concat(
        {all, pixtral_rules(prefix + "vision_tower.", *config.vision),
         tower_renames(projector, 0,
                       {{"norm.weight", "vision.connector.norm.weight"},
                        {"patch_merger.merging_layer.weight", "vision.connector.merger.weight"}}),
         tower_rules(projector, 0,
                     {{"linear_1", "vision.connector.w1"}, {"linear_2", "vision.connector.w2"}})});
  }
  return all;
}

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "mistral3",
               .text_type = "mistral",
               .tied = true,
               .defaults = R"({"image_token_index": 10, "spatial_merge_size": 2,
                               "vision_feature_layer": -1})",
               .read = read,
               .towers = {kPixtralTower},
               .by_choice = true}},
    .text_types = {"mistral", "ministral3"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::mistral3
