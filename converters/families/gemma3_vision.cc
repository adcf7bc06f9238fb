// Gemma 3 with images: a SigLIP tower over square images, the average of each block of patches, an
// RMS norm, one linear, and the text decoder of Gemma 3, in which the rows of an image attend to
// each other in both directions. Source: transformers, models/gemma3/modeling_gemma3.py.

#include <fmt/format.h>

#include <cmath>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::gemma3_vision {
namespace {

// Sets the side of the blocks of patches that are averaged. The reference rounds the side of the
// square of tokens and that of a block down.
Status read_blocks(const JsonFields& outer, VisionConfig& config) {
  constexpr const char* kTokens = "mm_tokens_per_image";
  const int64_t tokens = FERRY_TRY(outer.required(kTokens, IntRange{1, 1 << 20}));
  const int64_t side = std::llround(std::sqrt(static_cast<double>(tokens)));
  const int64_t grid = config.image_size / config.patch_size;
  if (side * side != tokens || side > grid || grid % side != 0) {
    return outer.error(
        ErrorCode::kUnsupported, kTokens,
        fmt::format("is {}: not the square of a divisor of {}, the patches of a side", tokens,
                    grid));
  }
  config.shuffle = grid / side;
  return {};
}

Status read(const JsonFields& outer, const JsonFields&, VisionConfig& config) {
  config.final_norm = true;
  config.connector = Connector::kAverage;
  config.two_way_images = true;
  FERRY_RETURN_IF_ERROR(read_image_token(outer, config));
  return read_blocks(outer, config);
}

std::vector<KeyRule> projector_rules(const ModelConfig& config, const std::string& projector) {
  return concat(
      {shifted_norm_rules(projector, {{"mm_soft_emb_norm.weight", "vision.connector.norm.weight"}}),
       {transpose_rule(projector + "mm_input_projection_weight", "vision.connector.w1.weight",
                       config.vision->hidden_size, config.hidden_size)}});
}

// Keys are as transformers saves them or as in memory. Up to version 4 the tower has one more name.
std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, projector_rules(config, prefix + "multi_modal_projector.")});
    for (const std::string name : {"vision_tower.", "vision_tower.vision_model."}) {
      const std::string tower = prefix + name;
      all = concat({all, siglip_rules(tower, *config.vision)});
    }
  }
  return all;
}

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "gemma3",
               .text_type = "gemma3_text",
               .tied = true,
               .defaults = R"({"image_token_index": 262144, "mm_tokens_per_image": 256})",
               .read = read,
               .towers = {kSiglipTower},
               .by_choice = true}},
    .text_types = {"gemma3_text"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::gemma3_vision
