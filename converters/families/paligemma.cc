// PaliGemma and PaliGemma 2: a SigLIP tower over square images, one linear, and a text decoder of
// Gemma or Gemma 2, in which all tokens of a prompt with images attend to each other in both
// directions. Source: transformers, models/paligemma/modeling_paligemma.py.

#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::paligemma {
namespace {

Status read(const JsonFields& outer, const JsonFields&, VisionConfig& config) {
  config.final_norm = true;
  config.two_way_images = config.two_way_prompts = true;
  config.connector_size = FERRY_TRY(outer.required("projection_dim", kSizeRange));
  return read_image_token(outer, config);
}

// Keys are as transformers saves them or as in memory. Up to version 4 the tower has one more name.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, tower_rules(prefix + "multi_modal_projector.", 0,
                                   {{"linear", "vision.connector.w1"}})});
    for (const std::string name : {"vision_tower.", "vision_tower.vision_model."}) {
      all = concat({all, siglip_rules(prefix + name, *config.vision)});
    }
  }
  return all;
}

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "paligemma",
               .text_type = "gemma",
               .tied = true,
               .defaults = R"({"image_token_index": 256000, "projection_dim": 2048})",
               .read = read,
               .towers = {kSiglipTower},
               .gives_masks = true,
               .first_position = 1}},
    .text_types = {"gemma", "gemma2"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::paligemma
