// Qwen2-VL and Qwen2.5-VL with images: a tower over images of any shape, whose patches have RoPE by
// row and column, and a merger of blocks of patches. Qwen2.5-VL has RMS norms, a gated MLP, and
// windows in most layers. Source: transformers, models/qwen2_vl/modeling_qwen2_vl.py and
// models/qwen2_5_vl/modeling_qwen2_5_vl.py.

#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::qwen2_vl_vision {
namespace {

constexpr const char* kDefaults = R"({"image_token_id": 151655, "video_token_id": 151656})";

// Reads the side of a window in blocks, rounded down as in the reference.
Status read_windows(const JsonFields& vision, VisionConfig& config) {
  const int64_t pixels = FERRY_TRY(vision.required("window_size", IntRange{1, 1 << 20}));
  AnyShapeConfig& shape = *config.any_shape;
  shape.window = pixels / config.shuffle / config.patch_size;
  if (shape.window == 0) {
    return vision.bad("window_size", fmt::format("is {}, less than a block of {} x {} pixels",
                                                 pixels, config.shuffle, config.patch_size));
  }
  const auto full = FERRY_TRY(vision.integers("fullatt_block_indexes", IntRange{-1024, 1 << 20}));
  if (full) shape.full = *full;
  return {};
}

Status read_2_5(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  config.any_shape.emplace().gated_mlp = true;
  config.rms_norm = true;
  FERRY_RETURN_IF_ERROR(read_tower_widths(vision, config));
  FERRY_RETURN_IF_ERROR(read_any_shape(outer, vision, "silu", config));
  config.tokens_per_second =
      FERRY_TRY(vision.required("tokens_per_second", IntRange{0, 1'000'000}));
  return read_windows(vision, config);
}

Status read_2(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  config.hidden_size = FERRY_TRY(vision.required("embed_dim", kSizeRange));
  const int64_t ratio = FERRY_TRY(vision.required("mlp_ratio", IntRange{1, 64}));
  config.intermediate_size = ratio * config.hidden_size;
  config.any_shape.emplace().output_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  return read_any_shape(outer, vision, "quick_gelu", config);
}

std::vector<KeyRule> tower_of(const VisionConfig& vision, const std::string& tower) {
  const std::string layer = tower + "blocks.{i}.";
  const int64_t layers = vision.num_layers;
  const std::vector<KeyRule> common = concat(
      {patch_rules(tower + "patch_embed.proj", vision), tower_qkv_rules(layer + "attn.qkv", vision),
       tower_rules(layer, layers, {{"attn.proj", "vision.layers.{i}.attention.wo"}}),
       tower_rules(tower + "merger.mlp.", 0,
                   {{"0", "vision.connector.w1"}, {"2", "vision.connector.w2"}})});
  if (!vision.rms_norm) {
    return concat({common,
                   tower_rules(layer, layers,
                               {{"norm1", "vision.layers.{i}.attention_norm"},
                                {"norm2", "vision.layers.{i}.ffn_norm"},
                                {"mlp.fc1", "vision.layers.{i}.feed_forward.w1"},
                                {"mlp.fc2", "vision.layers.{i}.feed_forward.w2"}}),
                   tower_rules(tower + "merger.", 0, {{"ln_q", "vision.connector.norm"}})});
  }
  return concat(
      {common,
       tower_renames(layer, layers,
                     {{"norm1.weight", "vision.layers.{i}.attention_norm.weight"},
                      {"norm2.weight", "vision.layers.{i}.ffn_norm.weight"}}),
       tower_rules(layer, layers,
                   {{"mlp.gate_proj", "vision.layers.{i}.feed_forward.w1"},
                    {"mlp.up_proj", "vision.layers.{i}.feed_forward.w3"},
                    {"mlp.down_proj", "vision.layers.{i}.feed_forward.w2"}}),
       tower_renames(tower + "merger.", 0, {{"ln_q.weight", "vision.connector.norm.weight"}})});
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({tower_of(*config.vision, "visual."), tower_of(*config.vision, "model.visual.")});
}

const RopeSections kSections = {.sizes = {16, 24, 24}};

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "qwen2_5_vl",
               .text_type = "qwen2_5_vl_text",
               .vision_defaults =
                   R"({"depth": 32, "hidden_size": 3584, "hidden_act": "silu",
                       "intermediate_size": 3420, "num_heads": 16, "in_channels": 3,
                       "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
                       "window_size": 112, "out_hidden_size": 3584, "tokens_per_second": 4,
                       "fullatt_block_indexes": [7, 15, 23, 31]})",
               .defaults = kDefaults,
               .read = read_2_5,
               .by_choice = true,
               .flat = true,
               .text_ties = true,
               .sections = &kSections},
              {.name = "qwen2_vl",
               .text_type = "qwen2_vl_text",
               .vision_defaults =
                   R"({"depth": 32, "embed_dim": 1280, "hidden_size": 3584,
                       "hidden_act": "quick_gelu", "mlp_ratio": 4, "num_heads": 16,
                       "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
                       "temporal_patch_size": 2})",
               .defaults = kDefaults,
               .read = read_2,
               .by_choice = true,
               .flat = true,
               .text_ties = true,
               .sections = &kSections}},
    .text_types = {"qwen2_5_vl_text", "qwen2_vl_text"},
    .text_prefixes = {"model.", "model.language_model."},
    .heads = {"lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::qwen2_vl_vision
