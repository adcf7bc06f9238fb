// InternVL 2.5, 3 and 3.5: an InternViT tower over square tiles with a class token and layer scale,
// a pixel shuffle, an MLP, and a text decoder of another family. Checkpoints are in one of two
// layouts: that of transformers (internvl) and that of OpenGVLab (internvl_chat). Source:
// transformers, models/internvl/modeling_internvl.py and convert_internvl_weights_to_hf.py.

#include <fmt/format.h>

#include <cmath>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/text.h"

namespace ferry::converters::families::internvl {
namespace {

constexpr FloatRange kRatioRange = {1.0 / 64, 1.0};

// Sets the factor of the pixel shuffle, 1 / downsample_ratio.
Status read_ratio(const JsonFields& outer, VisionConfig& config) {
  const double ratio = FERRY_TRY(outer.number_or("downsample_ratio", kRatioRange, 0.5));
  config.shuffle = std::llround(1.0 / ratio);
  if (static_cast<double>(config.shuffle) * ratio == 1.0) return {};
  return outer.error(ErrorCode::kUnsupported, "downsample_ratio",
                     fmt::format("is {}, not 1 divided by a whole number: not supported", ratio));
}

Status read_norm(const JsonFields& vision, VisionConfig& config) {
  const std::string norm = FERRY_TRY(vision.text("norm_type")).value_or("layer_norm");
  config.rms_norm = norm == "rms_norm";
  if (config.rms_norm || norm == "layer_norm") return {};
  return vision.error(ErrorCode::kUnsupported, "norm_type",
                      fmt::format("is {}; layer_norm and rms_norm are supported", quoted(norm)));
}

// Refuses a key that has not the one value that is supported.
Status require_flag(const JsonFields& fields, std::string_view key, bool value) {
  if (FERRY_TRY(fields.flag_or(key, value)) == value) return {};
  return fields.error(ErrorCode::kUnsupported, key,
                      fmt::format("is {}: not supported", value ? "false" : "true"));
}
Status require_text(const JsonFields& fields, std::string_view key, std::string_view value) {
  const std::string stated = FERRY_TRY(fields.text(key)).value_or(std::string(value));
  if (stated == value) return {};
  return fields.error(ErrorCode::kUnsupported, key,
                      fmt::format("is {}; {} is supported", quoted(stated), value));
}
Status require_last_layer(const JsonFields& fields, std::string_view key) {
  const int64_t layer = FERRY_TRY(fields.integer_or(key, IntRange{-1024, 1024}, -1));
  if (layer == -1) return {};
  return fields.error(ErrorCode::kUnsupported, key,
                      fmt::format("is {}; -1, the last layer, is supported", layer));
}

void set_structure(VisionConfig& config) {
  config.class_token = true;
  config.drops_first = true;
  config.layer_scale = true;
  config.connector = Connector::kMlp;
}

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  set_structure(config);
  config.qkv_bias = FERRY_TRY(vision.flag_or("attention_bias", false));
  config.qk_norm = FERRY_TRY(vision.flag_or("use_qk_norm", false));
  config.final_norm = !FERRY_TRY(vision.flag_or("use_mean_pooling", true));
  FERRY_RETURN_IF_ERROR(read_norm(vision, config));
  FERRY_RETURN_IF_ERROR(require_flag(vision, "use_mask_token", false));
  FERRY_RETURN_IF_ERROR(require_flag(vision, "use_absolute_position_embeddings", true));
  config.image_token_id = FERRY_TRY(outer.required("image_token_id", IntRange{0, INT32_MAX}));
  config.connector_activation = FERRY_TRY(read_activation(outer, "projector_hidden_act", "gelu"));
  FERRY_RETURN_IF_ERROR(require_last_layer(outer, "vision_feature_layer"));
  FERRY_RETURN_IF_ERROR(require_text(outer, "vision_feature_select_strategy", "default"));
  return read_ratio(outer, config);
}

// OpenGVLab's config. Its code names the placeholder, whose id is in the tokenizer only.
Status read_chat(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  set_structure(config);
  config.image_token = "<IMG_CONTEXT>";
  config.qkv_bias = FERRY_TRY(vision.flag_or("qkv_bias", true));
  config.qk_norm = FERRY_TRY(vision.flag_or("qk_normalization", true));
  config.qk_norm_eps = config.norm_eps;
  FERRY_RETURN_IF_ERROR(read_norm(vision, config));
  FERRY_RETURN_IF_ERROR(require_last_layer(outer, "select_layer"));
  FERRY_RETURN_IF_ERROR(require_text(outer, "ps_version", "v2"));
  const int64_t size =
      FERRY_TRY(outer.integer_or("force_image_size", IntRange{1, 1 << 14}, config.image_size));
  if (size != config.image_size) {
    return outer.error(
        ErrorCode::kUnsupported, "force_image_size",
        fmt::format("is {}, the vision tower's image_size is {}: position embeddings "
                    "are not interpolated",
                    size, config.image_size));
  }
  return read_ratio(outer, config);
}

// transformers' layout: on disk, and as the modules are called in memory.
std::vector<KeyRule> own_rules(const VisionConfig& vision, const std::string& prefix) {
  const std::string tower = prefix + "vision_tower.";
  const std::string layer = tower + "encoder.layer.{i}.";
  return concat(
      {patch_rules(tower + "embeddings.patch_embeddings.projection", vision),
       tower_renames(tower, 0,
                     {{"embeddings.cls_token", "vision.class_token"},
                      {"embeddings.position_embeddings", "vision.positions.weight"}}),
       tower_rules(layer, vision.num_layers,
                   {{"layernorm_before", "vision.layers.{i}.attention_norm"},
                    {"attention.q_proj", "vision.layers.{i}.attention.wq"},
                    {"attention.k_proj", "vision.layers.{i}.attention.wk"},
                    {"attention.v_proj", "vision.layers.{i}.attention.wv"},
                    {"attention.projection_layer", "vision.layers.{i}.attention.wo"},
                    {"layernorm_after", "vision.layers.{i}.ffn_norm"},
                    {"mlp.fc1", "vision.layers.{i}.feed_forward.w1"},
                    {"mlp.fc2", "vision.layers.{i}.feed_forward.w2"}}),
       tower_renames(layer, vision.num_layers,
                     {{"attention.q_norm.weight", "vision.layers.{i}.attention.q_norm.weight"},
                      {"attention.k_norm.weight", "vision.layers.{i}.attention.k_norm.weight"},
                      {"lambda_1", "vision.layers.{i}.attention.scale"},
                      {"lambda_2", "vision.layers.{i}.feed_forward.scale"}}),
       tower_rules(tower, 0, {{"layernorm", "vision.norm"}}),
       tower_rules(prefix + "multi_modal_projector.", 0,
                   {{"layer_norm", "vision.connector.norm"},
                    {"linear_1", "vision.connector.w1"},
                    {"linear_2", "vision.connector.w2"}})});
}

std::vector<KeyRule> chat_rules(const VisionConfig& vision) {
  const std::string tower = "vision_model.";
  const std::string layer = tower + "encoder.layers.{i}.";
  return concat({patch_rules(tower + "embeddings.patch_embedding", vision),
                 tower_renames(tower, 0,
                               {{"embeddings.class_embedding", "vision.class_token"},
                                {"embeddings.position_embedding", "vision.positions.weight"}}),
                 tower_qkv_rules(layer + "attn.qkv", vision),
                 tower_rules(layer, vision.num_layers,
                             {{"norm1", "vision.layers.{i}.attention_norm"},
                              {"attn.proj", "vision.layers.{i}.attention.wo"},
                              {"norm2", "vision.layers.{i}.ffn_norm"},
                              {"mlp.fc1", "vision.layers.{i}.feed_forward.w1"},
                              {"mlp.fc2", "vision.layers.{i}.feed_forward.w2"}}),
                 tower_renames(layer, vision.num_layers,
                               {{"attn.q_norm.weight", "vision.layers.{i}.attention.q_norm.weight"},
                                {"attn.k_norm.weight", "vision.layers.{i}.attention.k_norm.weight"},
                                {"ls1", "vision.layers.{i}.attention.scale"},
                                {"ls2", "vision.layers.{i}.feed_forward.scale"}}),
                 tower_rules("mlp1.", 0,
                             {{"0", "vision.connector.norm"},
                              {"1", "vision.connector.w1"},
                              {"3", "vision.connector.w2"}})});
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  const VisionConfig& vision = *config.vision;
  return concat({own_rules(vision, ""), own_rules(vision, "model."), chat_rules(vision)});
}

}  // namespace

const VisionFamily kFamily = {
    .types = {{.name = "internvl",
               .text_type = "qwen2",
               .tied = true,
               .vision_defaults =
                   R"({"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                       "num_attention_heads": 16, "num_channels": 3, "image_size": 448,
                       "patch_size": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-6})",
               .defaults = R"({"image_token_id": 151667})",
               .read = read},
              {.name = "internvl_chat",
               .text_key = "llm_config",
               .text_type = "qwen2",
               .tied = std::nullopt,
               .vision_defaults =
                   R"({"hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 48,
                       "num_attention_heads": 25, "num_channels": 3, "image_size": 224,
                       "patch_size": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-6,
                       "norm_type": "rms_norm", "qkv_bias": false, "qk_normalization": true})",
               .read = read_chat}},
    .text_types = {"qwen2", "qwen3", "qwen3_moe", "llama"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::internvl
