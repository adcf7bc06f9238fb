// Qwen3-VL and Qwen3.5 with images, dense or with experts: a tower over images of any shape with
// learned positions, which are interpolated, beside RoPE by row and column. In Qwen3-VL, what some
// of its layers see is added to the outputs of the first layers of the text decoder too
// (DeepStack). Source: transformers, models/qwen3_vl/modeling_qwen3_vl.py and
// models/qwen3_5/modeling_qwen3_5.py.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::qwen3_vl_vision {
namespace {

constexpr const char* kDefaults = R"({"image_token_id": 151655, "video_token_id": 151656})";
constexpr const char* kDefaults3_5 = R"({"image_token_id": 248056, "video_token_id": 248057})";
constexpr const char* kMtp = "multi-token prediction: not part of the model's output";
constexpr const char* kVisionDefaults =
    R"({"depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": 4304, "num_heads": 16, "in_channels": 3, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584,
        "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]})";

// The table of positions is a square; the reference rounds its side down.
Status read_table(const JsonFields& vision, VisionConfig& config) {
  constexpr const char* kCount = "num_position_embeddings";
  const int64_t count = FERRY_TRY(vision.required(kCount, IntRange{1, 1 << 24}));
  AnyShapeConfig& shape = *config.any_shape;
  shape.table = std::llround(std::sqrt(static_cast<double>(count)));
  if (shape.table * shape.table == count) return {};
  return vision.error(ErrorCode::kUnsupported, kCount,
                      fmt::format("is {}, not a square: not supported", count));
}

// A layer that the tower does not have, or has once already, leaves a merger without use.
Status read_deepstack(const JsonFields& vision, VisionConfig& config) {
  constexpr const char* kLayers = "deepstack_visual_indexes";
  const auto layers = FERRY_TRY(vision.integers(kLayers, IntRange{-1024, 1 << 20}));
  if (!layers) return {};
  AnyShapeConfig& shape = *config.any_shape;
  for (const int64_t layer : *layers) {
    const bool known = layer >= 0 && layer < config.num_layers;
    if (!known || std::ranges::count(shape.deepstack, layer) > 0) {
      return vision.error(
          ErrorCode::kUnsupported, kLayers,
          fmt::format("has {}, {}: not supported", layer,
                      known ? "twice" : fmt::format("of {} layers", config.num_layers)));
    }
    shape.deepstack.push_back(layer);
  }
  return {};
}

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  config.any_shape.emplace().patch_bias = true;
  FERRY_RETURN_IF_ERROR(read_tower_widths(vision, config));
  FERRY_RETURN_IF_ERROR(read_any_shape(outer, vision, "gelu_pytorch_tanh", config));
  return read_table(vision, config);
}

Status read_3(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  FERRY_RETURN_IF_ERROR(read(outer, vision, config));
  return read_deepstack(vision, config);
}

std::vector<KeyRule> merger_rules(const std::string& merger, int64_t count,
                                  const std::string& target) {
  const std::string norm = target + ".norm", first = target + ".w1", second = target + ".w2";
  return tower_rules(
      merger, count,
      {{"norm", norm.c_str()}, {"linear_fc1", first.c_str()}, {"linear_fc2", second.c_str()}});
}

std::vector<KeyRule> tower_of(const VisionConfig& vision, const std::string& tower) {
  const std::string layer = tower + "blocks.{i}.";
  const int64_t mergers = std::ssize(vision.any_shape->deepstack);
  std::vector<KeyRule> deepstack;
  if (mergers > 0) {
    deepstack = merger_rules(tower + "deepstack_merger_list.{i}.", mergers, "vision.deepstack.{i}");
  }
  return concat({patch_rules(tower + "patch_embed.proj", vision),
                 tower_renames(tower, 0, {{"pos_embed.weight", "vision.positions.weight"}}),
                 tower_qkv_rules(layer + "attn.qkv", vision),
                 tower_rules(layer, vision.num_layers,
                             {{"norm1", "vision.layers.{i}.attention_norm"},
                              {"attn.proj", "vision.layers.{i}.attention.wo"},
                              {"norm2", "vision.layers.{i}.ffn_norm"},
                              {"mlp.linear_fc1", "vision.layers.{i}.feed_forward.w1"},
                              {"mlp.linear_fc2", "vision.layers.{i}.feed_forward.w2"}}),
                 merger_rules(tower + "merger.", 0, "vision.connector"), deepstack});
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({tower_of(*config.vision, "visual."),
                 tower_of(*config.vision, "model.visual."),
                 {drop_rule("mtp.*", kMtp), drop_rule("model.mtp.*", kMtp)}});
}

const RopeSections kSections = {.sizes = {24, 20, 20}, .in_turn = true};
const RopeSections kSections3_5 = {.sizes = {11, 11, 10}, .in_turn = true};

VisionType type_of(std::string_view name, std::string_view text_type) {
  return {.name = name,
          .text_type = text_type,
          .vision_defaults = kVisionDefaults,
          .defaults = kDefaults,
          .read = read_3,
          .by_choice = true,
          .sections = &kSections};
}

VisionType type_3_5(std::string_view name, std::string_view text_type) {
  VisionType type = type_of(name, text_type);
  type.defaults = kDefaults3_5;
  type.read = read;
  type.sections = &kSections3_5;
  return type;
}

}  // namespace

const VisionFamily kFamily = {
    .types = {type_of("qwen3_vl", "qwen3_vl_text"), type_of("qwen3_vl_moe", "qwen3_vl_moe_text"),
              type_3_5("qwen3_5", "qwen3_5_text"), type_3_5("qwen3_5_moe", "qwen3_5_moe_text")},
    .text_types = {"qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text"},
    .text_prefixes = {"model.", "model.language_model.", "language_model.model."},
    .heads = {"lm_head.weight", "language_model.lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::qwen3_vl_vision
