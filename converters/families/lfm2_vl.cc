// LFM2-VL and LFM2.5-VL: a SigLIP 2 tower over lists of patches of any number of rows and columns
// (NaFlex), a pixel shuffle, an MLP, and a text decoder of LFM2. Source: transformers,
// models/lfm2_vl/modeling_lfm2_vl.py and models/siglip2/modeling_siglip2.py.

#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::lfm2_vl {
namespace {

// Patches of a tile by the defaults of the image processor, which a conversion reads.
constexpr int64_t kMaxPatches = 1024;

Status read(const JsonFields& outer, const JsonFields&, VisionConfig& config) {
  config.max_patches = kMaxPatches;
  config.shuffle = FERRY_TRY(outer.required("downsample_factor", IntRange{1, 64}));
  config.image_token_id = FERRY_TRY(outer.required("image_token_id", IntRange{0, INT32_MAX}));
  config.final_norm = true;
  config.connector = Connector::kMlp;
  config.connector_norm = FERRY_TRY(outer.flag_or("projector_use_layernorm", true));
  config.connector_bias = FERRY_TRY(outer.flag_or("projector_bias", true));
  config.connector_size = FERRY_TRY(outer.required("projector_hidden_size", kSizeRange));
  config.connector_activation = FERRY_TRY(read_activation(outer, "projector_hidden_act", "gelu"));
  return {};
}

// Keys are as transformers saves them, or those of the model without its head. Up to version 4 the
// tower has one more name.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, tower_rules(prefix + "multi_modal_projector.", 0,
                                   {{"layer_norm", "vision.connector.norm"},
                                    {"linear_1", "vision.connector.w1"},
                                    {"linear_2", "vision.connector.w2"}})});
    for (const std::string name : {"vision_tower.", "vision_tower.vision_model."}) {
      const std::string tower = prefix + name;
      all = concat({all, siglip_rules(tower, *config.vision)});
    }
  }
  return all;
}

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "lfm2_vl",
               .text_type = "lfm2",
               .tied = true,
               .defaults = R"({"image_token_id": 396, "projector_hidden_size": 2560,
                               "downsample_factor": 2})",
               .read = read,
               .towers = {kSiglip2Tower},
               .patch_lists = true,
               .names = {{"tie_word_embeddings", {"tie_embedding", "tie_word_embeddings"}}}}},
    .text_types = {"lfm2", "lfm2_moe"},
    .text_prefixes = {"model.language_model.", "language_model."},
    .heads = {"lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::lfm2_vl
