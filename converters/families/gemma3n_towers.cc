// Gemma 3n with images and sounds. Of images a MobileNet-v5, whose rows are those of a square. Of
// sounds convolutions that make a row of several log-mel frames, layers of two half MLPs around
// attention to near rows and a convolution, of whose rows every fourth becomes one of the text
// decoder. Placeholders behind these, and token ids that stand for images and sounds, have
// embeddings of tables of their own. Source: transformers, models/gemma3n/modeling_gemma3n.py.

#include <fmt/format.h>

#include <cfloat>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/gemma3n_audio_keys.h"
#include "converters/keys/mobilenet_keys.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters::families::gemma3n_towers {
namespace {

constexpr const char* kAudioKey = "audio_config";
constexpr const char* kNoImages = "vision: no images are asked for";
constexpr const char* kNoSounds = "audio: no sounds are asked for";
constexpr const char* kKernels = "sscp_conv_kernel_size";
constexpr const char* kSteps = "sscp_conv_stride_size";
constexpr IntRange kPlaceRange = {0, 1024}, kRowsRange = {1, 1024}, kMelsRange = {1, 1024},
                   kSoftRange = {1, 1 << 16}, kIdRange = {0, INT32_MAX}, kSideRange = {1, 64};
constexpr FloatRange kLogitCap = {1e-3, 1e6}, kClipRange = {1e-3, DBL_MAX};

constexpr const char* kOuterDefaults =
    R"({"audio_soft_tokens_per_image": 188, "audio_token_id": 262273,
        "vision_soft_tokens_per_image": 256, "image_token_id": 262145})";
constexpr const char* kEncoderDefaults =
    R"({"vocab_size": 128, "vocab_offset": 262272, "input_feat_size": 128, "hidden_size": 1536,
        "rms_norm_eps": 1e-6, "gradient_clipping": 1e10, "conf_attention_chunk_size": 12,
        "conf_attention_context_left": 13, "conf_attention_context_right": 0,
        "conf_attention_logit_cap": 50.0, "conf_num_attention_heads": 8,
        "conf_num_hidden_layers": 12, "conf_conv_kernel_size": 5, "conf_reduction_factor": 4,
        "conf_residual_weight": 0.5, "sscp_conv_channel_size": [128, 32],
        "sscp_conv_group_norm_eps": 1e-3, "sscp_conv_kernel_size": [[3, 3], [3, 3]],
        "sscp_conv_stride_size": [[2, 2], [2, 2]]})";
constexpr VisionTower kTower = {
    "gemma3n_vision",
    R"({"hidden_size": 2048, "vocab_size": 128, "vocab_offset": 262144, "rms_norm_eps": 1e-6})"};

// Reads [[time, bins], [time, bins]].
Status read_pairs(const JsonFields& fields, const char* key, int64_t (&out)[2][2]) {
  const nlohmann::json* stated = fields.find(key);
  const auto is_list = [](const nlohmann::json& list) {
    return list.is_array() && list.size() == 2;
  };
  const auto fits = [](const nlohmann::json& item) {
    return item.is_number_integer() && item >= kSideRange.min && item <= kSideRange.max;
  };
  const auto is_pair = [&](const nlohmann::json& pair) {
    return is_list(pair) && fits(pair[0]) && fits(pair[1]);
  };
  if (stated == nullptr || !is_list(*stated) || !is_pair((*stated)[0]) || !is_pair((*stated)[1])) {
    return fields.bad(key, fmt::format("is no list of two pairs of numbers from {} to {}",
                                       kSideRange.min, kSideRange.max));
  }
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 2; ++j) out[i][j] = (*stated)[i][j].get<int64_t>();
  }
  return {};
}

Status read_front(const JsonFields& fields, AudioConfig& audio) {
  constexpr const char* kChannels = "sscp_conv_channel_size";
  UsmAudioConfig& usm = *audio.usm;
  Gemma3nAudioConfig& own = *usm.gemma3n;
  audio.mel_bins = FERRY_TRY(fields.required("input_feat_size", kMelsRange));
  const auto channels = FERRY_TRY(fields.integers(kChannels, {1, 1 << 12}));
  if (!channels || channels->size() != 2) return fields.bad(kChannels, "is no list of two numbers");
  for (size_t i = 0; i < 2; ++i) usm.channels[i] = (*channels)[i];
  FERRY_RETURN_IF_ERROR(read_pairs(fields, kKernels, own.kernels));
  FERRY_RETURN_IF_ERROR(read_pairs(fields, kSteps, own.steps));
  own.group_eps = FERRY_TRY(fields.number_or("sscp_conv_group_norm_eps", kEpsRange, own.group_eps));
  if (own.bins_behind(2, audio.mel_bins) > 0) return {};
  return fields.bad(kKernels, fmt::format("leaves none of {} bins", audio.mel_bins));
}

Status read_near_rows(const JsonFields& fields, UsmAudioConfig& out) {
  out.chunk = FERRY_TRY(fields.required("conf_attention_chunk_size", kRowsRange));
  const int64_t left = FERRY_TRY(fields.required("conf_attention_context_left", kPlaceRange));
  out.past = left > 0 ? left - 1 : 0;
  out.future = FERRY_TRY(fields.required("conf_attention_context_right", kPlaceRange));
  out.cap = FERRY_TRY(fields.number_or("conf_attention_logit_cap", kLogitCap, out.cap));
  return {};
}

// Reads the embedder of a config; `name` is that of its weights.
Result<TokenRangeConfig> read_range(const JsonFields& fields, const char* name) {
  TokenRangeConfig range;
  range.name = name;
  range.width = FERRY_TRY(fields.required("hidden_size", kSizeRange));
  range.table_rows = FERRY_TRY(fields.required("vocab_size", kSizeRange));
  range.first = FERRY_TRY(fields.required("vocab_offset", kIdRange));
  range.norm_eps = FERRY_TRY(fields.number_or("rms_norm_eps", kEpsRange, range.norm_eps));
  return range;
}

Status read_sound(const JsonFields& outer, ModelConfig& config) {
  auto fields = FERRY_TRY(outer.object(kAudioKey));
  if (!fields) return outer.bad(kAudioKey, "is missing");
  const std::string type = FERRY_TRY(fields->text("model_type")).value_or("gemma3n_audio");
  if (type != "gemma3n_audio") {
    return fields->error(ErrorCode::kUnsupported, "model_type",
                         fmt::format("is {}; gemma3n_audio is supported", quoted(type)));
  }
  const nlohmann::json defaults = nlohmann::json::parse(kEncoderDefaults);
  fields->set_defaults(defaults);
  AudioConfig& audio = config.audio.emplace();
  audio.to_rows.emplace();
  UsmAudioConfig& usm = audio.usm.emplace();
  Gemma3nAudioConfig& own = usm.gemma3n.emplace();
  usm.clips = false;
  FERRY_RETURN_IF_ERROR(read_usm_widths(*fields, "conf_num_attention_heads", audio));
  audio.activation = Activation::kSilu;
  audio.num_layers = FERRY_TRY(fields->required("conf_num_hidden_layers", kLayerRange));
  FERRY_RETURN_IF_ERROR(read_front(*fields, audio));
  FERRY_RETURN_IF_ERROR(read_near_rows(*fields, usm));
  FERRY_RETURN_IF_ERROR(check_usm_tables(*fields, audio));
  usm.time_kernel = FERRY_TRY(fields->required("conf_conv_kernel_size", kConvRange));
  own.reduction = FERRY_TRY(fields->required("conf_reduction_factor", kRowsRange));
  usm.residual = FERRY_TRY(fields->number_or("conf_residual_weight", {-1e6, 1e6}, usm.residual));
  usm.greatest = FERRY_TRY(fields->number_or("gradient_clipping", kClipRange, usm.greatest));
  usm.norm_eps = FERRY_TRY(fields->number_or("rms_norm_eps", kEpsRange, usm.norm_eps));
  own.rows = FERRY_TRY(outer.required("audio_soft_tokens_per_image", kSoftRange));
  audio.to_rows->token_id = FERRY_TRY(outer.required("audio_token_id", kIdRange));
  return {};
}

Status read(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) {
  FERRY_RETURN_IF_ERROR(read_mobilenet(outer, "vision_soft_tokens_per_image", vision, config));
  config.image_token_id = FERRY_TRY(outer.required("image_token_id", kIdRange));
  return {};
}

// Token ids from the offset of images on, below that of sounds, have embeddings of the table of
// images, and those from the offset of sounds on of the table of sounds. The rows behind those of a
// sound are the embedding of the last id.
Status read_rows(const JsonFields& outer, ModelConfig& config) {
  const auto read = [&](const char* part, const char* name,
                        std::string_view otherwise) -> Result<TokenRangeConfig> {
    auto fields = FERRY_TRY(outer.object(part));
    if (!fields) return outer.bad(part, "is missing");
    const nlohmann::json defaults = nlohmann::json::parse(otherwise);
    fields->set_defaults(defaults);
    return read_range(*fields, name);
  };
  TokenRangeConfig images = FERRY_TRY(read("vision_config", "vision", kTower.defaults));
  TokenRangeConfig sounds = FERRY_TRY(read(kAudioKey, "audio", kEncoderDefaults));
  images.end = std::min(sounds.first, config.vocab_size);
  sounds.end = config.vocab_size;
  const auto misfit = [&](const char* part, const TokenRangeConfig& range) {
    return outer.bad(part, fmt::format("has a vocab_offset of {} and {} entries for the ids to {}",
                                       range.first, range.table_rows, range.end));
  };
  if (sounds.first >= sounds.end || sounds.end - sounds.first > sounds.table_rows) {
    return misfit(kAudioKey, sounds);
  }
  if (images.end - images.first > images.table_rows) return misfit("vision_config", images);
  if (images.first < images.end) config.token_ranges.push_back(std::move(images));
  if (config.vision && config.token_ranges.empty()) {
    return outer.error(ErrorCode::kUnsupported, "vision_config",
                       "has a vocab_offset behind which no ids are those of images: not supported");
  }
  config.token_ranges.push_back(std::move(sounds));
  return {};
}

std::vector<KeyRule> tower_of(const ModelConfig& config) {
  const std::string tower = "model.vision_tower.timm_model.";
  if (config.vision) return mobilenet_rules(tower, *config.vision);
  return {drop_rule("model.vision_tower.*", kNoImages)};
}
std::vector<KeyRule> audio_encoder_of(const ModelConfig& config) {
  if (config.audio) return gemma3n_audio_rules("model.audio_tower.", config);
  return {drop_rule("model.audio_tower.*", kNoSounds)};
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  const bool has_images = config.token_ranges.size() > 1;
  return concat(
      {tower_of(config),
       has_images
           ? gemma3n_embedder_rules("model.embed_vision.", "vision", config.vision.has_value())
           : std::vector{drop_rule("model.embed_vision.*", "vision: no id is in its range")},
       audio_encoder_of(config),
       gemma3n_embedder_rules("model.embed_audio.", "audio", config.audio.has_value())});
}

}  // namespace

const VisionFamily kFamily = {.types = {{.name = "gemma3n",
                                         .text_type = "gemma3n_text",
                                         .tied = true,
                                         .defaults = kOuterDefaults,
                                         .read = read,
                                         .read_sound = read_sound,
                                         .read_rows = read_rows,
                                         .towers = {kTower},
                                         .reads_all = true,
                                         .by_choice = true}},
                              .text_types = {"gemma3n_text"},
                              .text_prefixes = {"model.language_model."},
                              .heads = {"lm_head.weight"},
                              .rules = rules};

}  // namespace ferry::converters::families::gemma3n_towers
