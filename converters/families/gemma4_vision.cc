// Gemma 4 with images and sounds. Of images a tower over lists of patches of any number of rows and
// columns, with learned positions and RoPE by column and row, the average of each square of
// patches, an RMS norm and one linear. In the text decoder, the rows of an image may attend to each
// other in the layers with windows. Of sounds gemma4_audio.h. Source: transformers,
// models/gemma4/modeling_gemma4.py.

#include <fmt/format.h>

#include "converters/config/config_parts.h"
#include "converters/families/gemma4_audio.h"
#include "converters/families/vision_families.h"
#include "converters/keys/gemma4_audio_keys.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters::families::gemma4_vision {
namespace {

constexpr const char* kNoImages = "vision: no images are asked for";
constexpr const char* kNoSounds = "audio: no sounds are asked for";
constexpr IntRange kPatchRange = {1, 256};
constexpr IntRange kPoolRange = {1, 64};
constexpr IntRange kIdRange = {0, INT32_MAX};
// Tokens of an image by the defaults of the image processor, which a conversion reads.
constexpr int64_t kMaxTokens = 280;

constexpr const char* kDefaults = R"({"image_token_id": 258880, "video_token_id": 258884,
                                      "audio_token_id": 258881})";
constexpr VisionTower kTower = {
    "gemma4_vision",
    R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
        "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
        "pooling_kernel_size": 3, "patch_size": 16, "position_embedding_size": 10240,
        "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0}})"};

Status read_heads(const JsonFields& vision, VisionConfig& config) {
  Gemma4TowerConfig& tower = *config.gemma4;
  config.num_heads = FERRY_TRY(vision.required("num_attention_heads", kHeadRange));
  tower.num_kv_heads = FERRY_TRY(vision.required("num_key_value_heads", kHeadRange));
  tower.head_dim = FERRY_TRY(vision.required("head_dim", kHeadDimRange));
  if (config.num_heads % tower.num_kv_heads != 0) {
    return vision.bad("num_key_value_heads", fmt::format("is {}, which does not divide {} heads",
                                                         tower.num_kv_heads, config.num_heads));
  }
  if (config.num_heads * tower.head_dim > kSizeRange.max) {
    return vision.bad("num_attention_heads", fmt::format("is {}: too many for heads of {}",
                                                         config.num_heads, tower.head_dim));
  }
  if (tower.head_dim % 4 == 0) return {};
  return vision.bad("head_dim", fmt::format("is {}: RoPE by row and column needs whole quarters",
                                            tower.head_dim));
}

Status read_patch_rope(const JsonFields& vision, Gemma4TowerConfig& tower) {
  const auto rope = FERRY_TRY(vision.object_or_default("rope_parameters"));
  const std::string type = FERRY_TRY(rope->text("rope_type")).value_or("axial");
  if (type != "axial") {
    return rope->error(ErrorCode::kUnsupported, "rope_type",
                       fmt::format("is {}; axial is supported", quoted(type)));
  }
  tower.rope_theta = FERRY_TRY(rope->number_or("rope_theta", kThetaRange, 100.0));
  return {};
}

Status read_tower(const JsonFields& vision, VisionConfig& config) {
  Gemma4TowerConfig& tower = config.gemma4.emplace();
  config.hidden_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  config.intermediate_size = FERRY_TRY(vision.required("intermediate_size", kSizeRange));
  config.num_layers = FERRY_TRY(vision.required("num_hidden_layers", kLayerRange));
  FERRY_RETURN_IF_ERROR(read_heads(vision, config));
  config.activation = FERRY_TRY(read_activation(vision, "hidden_activation", "gelu_pytorch_tanh"));
  config.norm_eps = FERRY_TRY(vision.number_or("rms_norm_eps", kEpsRange, 1e-6));
  config.patch_size = FERRY_TRY(vision.required("patch_size", kPatchRange));
  config.shuffle = FERRY_TRY(vision.required("pooling_kernel_size", kPoolRange));
  if (config.shuffle == 1) {
    return vision.error(ErrorCode::kUnsupported, "pooling_kernel_size",
                        "is 1, of which the reference takes padding for features: not supported");
  }
  config.max_patches = kMaxTokens * config.shuffle * config.shuffle;
  tower.positions = FERRY_TRY(vision.required("position_embedding_size", kSizeRange));
  tower.clips = FERRY_TRY(vision.flag_or("use_clipped_linears", false));
  tower.standardizes = FERRY_TRY(vision.flag_or("standardize", false));
  return read_patch_rope(vision, tower);
}

// Placeholders of images, videos and sounds have the embedding and the layer inputs of the padding
// token.
Status read_rows(const JsonFields& outer, ModelConfig& config) {
  const auto text = FERRY_TRY(outer.object("text_config"));
  if (!text) return outer.bad("text_config", "is missing");
  for (const char* key : {"image_token_id", "video_token_id", "audio_token_id"}) {
    if (const auto id = FERRY_TRY(outer.integer(key, kIdRange))) config.padded_ids.push_back(*id);
  }
  constexpr const char* kPad = "pad_token_id";
  if (text->states(kPad) && text->find(kPad) == nullptr) {
    return text->bad(kPad, "is null, and placeholders of images have its embedding");
  }
  const int64_t vocab = FERRY_TRY(text->integer_or("vocab_size", kSizeRange, 262144));
  config.pad_id = FERRY_TRY(text->integer_or(kPad, {0, vocab - 1}, 0));
  return {};
}

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  FERRY_RETURN_IF_ERROR(read_tower(vision, config));
  const auto text = FERRY_TRY(outer.object("text_config"));
  if (!text) return outer.bad("text_config", "is missing");
  config.image_token_id = FERRY_TRY(outer.required("image_token_id", kIdRange));
  config.video_token_id = FERRY_TRY(outer.integer("video_token_id", kIdRange));
  const auto direction = FERRY_TRY(text->text("use_bidirectional_attention"));
  config.two_way_images = config.two_way_in_windows = direction == "vision";
  return {};
}

// The table is one tensor: the rows of the columns of an image, then those of its rows.
KeyRule position_table_rule(const std::string& source, const VisionConfig& vision) {
  const int64_t count = vision.gemma4->positions, width = vision.hidden_size;
  KeyRule rule;
  rule.name = "split positions [columns | rows]";
  rule.source = source;
  rule.expected_shape = [count, width](const ModelConfig&) { return Shape{2, count, width}; };
  for (int64_t part = 0; part < 2; ++part) {
    rule.targets.push_back(
        {.name = part == 0 ? "vision.column_positions.weight" : "vision.row_positions.weight",
         .rows = [count,
                  part](const ModelConfig&) { return RowOrder{run_piece(0, part * count, count)}; },
         .shape =
             [count, width](const ModelConfig&) {
               return Shape{count, width};
             }});
  }
  return rule;
}

std::vector<KeyRule> linear_rules(const std::string& layer, const VisionConfig& vision) {
  constexpr Rename kLinears[] = {
      {"self_attn.q_proj", "attention.wq"}, {"self_attn.k_proj", "attention.wk"},
      {"self_attn.v_proj", "attention.wv"}, {"self_attn.o_proj", "attention.wo"},
      {"mlp.gate_proj", "feed_forward.w1"}, {"mlp.up_proj", "feed_forward.w3"},
      {"mlp.down_proj", "feed_forward.w2"}};
  std::vector<KeyRule> all;
  for (const Rename& linear : kLinears) {
    const std::string target = std::string("vision.layers.{i}.") + linear.target;
    const auto add = [&](const char* from, const char* to) {
      const std::string source = linear.source + std::string(from), name = target + to;
      all =
          concat({all, tower_renames(layer, vision.num_layers, {{source.c_str(), name.c_str()}})});
    };
    add(".linear.weight", ".weight");
    if (!vision.gemma4->clips) continue;
    for (const char* limit : {".input_min", ".input_max", ".output_min", ".output_max"}) {
      add(limit, limit);
    }
  }
  return all;
}

std::vector<KeyRule> tower_of(const VisionConfig& vision, const std::string& tower) {
  const std::string layer = tower + "encoder.layers.{i}.";
  std::vector<KeyRule> all = concat(
      {tower_renames(tower, 0, {{"patch_embedder.input_proj.weight", "vision.patches.weight"}}),
       {position_table_rule(tower + "patch_embedder.position_embedding_table", vision)},
       linear_rules(layer, vision),
       tower_renames(
           layer, vision.num_layers,
           {{"self_attn.q_norm.weight", "vision.layers.{i}.attention.q_norm.weight"},
            {"self_attn.k_norm.weight", "vision.layers.{i}.attention.k_norm.weight"},
            {"input_layernorm.weight", "vision.layers.{i}.attention_norm.weight"},
            {"post_attention_layernorm.weight", "vision.layers.{i}.post_attention_norm.weight"},
            {"pre_feedforward_layernorm.weight", "vision.layers.{i}.ffn_norm.weight"},
            {"post_feedforward_layernorm.weight", "vision.layers.{i}.post_ffn_norm.weight"}})});
  if (!vision.gemma4->standardizes) return all;
  return concat({all, tower_renames(tower, 0,
                                    {{"std_bias", "vision.features.shift"},
                                     {"std_scale", "vision.features.scale"}})});
}

std::vector<KeyRule> vision_rules(const ModelConfig& config) {
  if (!config.vision) {
    return {drop_rule("model.vision_tower.*", kNoImages),
            drop_rule("model.embed_vision.*", kNoImages)};
  }
  return concat({tower_of(*config.vision, "model.vision_tower."),
                 tower_renames("model.embed_vision.", 0,
                               {{"embedding_projection.weight", "vision.connector.w1.weight"}})});
}

std::vector<KeyRule> audio_rules(const ModelConfig& config) {
  if (config.audio) return gemma4_audio_rules("model.audio_tower.", "model.embed_audio.", config);
  return {drop_rule("model.audio_tower.*", kNoSounds), drop_rule("model.embed_audio.*", kNoSounds)};
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({vision_rules(config), audio_rules(config)});
}

}  // namespace

const VisionFamily kFamily = {.types = {{.name = "gemma4",
                                         .text_type = "gemma4_text",
                                         .tied = true,
                                         .defaults = kDefaults,
                                         .read = read,
                                         .read_sound = read_gemma4_sound,
                                         .read_rows = read_rows,
                                         .towers = {kTower},
                                         .patch_lists = true,
                                         .reads_all = true,
                                         .by_choice = true}},
                              .text_types = {"gemma4_text"},
                              .text_prefixes = {"model.language_model."},
                              .heads = {"lm_head.weight"},
                              .rules = rules};

}  // namespace ferry::converters::families::gemma4_vision
