// Granite Speech: a conformer over pairs of log-mel frames, a Q-Former that makes rows of windows
// of its states, and a text decoder of Granite. In Granite Speech Plus the Q-Former takes states of
// earlier layers too. Source: transformers, models/granite_speech/modeling_granite_speech.py and
// models/granite_speech_plus/modeling_granite_speech_plus.py.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/granite_audio_keys.h"
#include "core/text.h"

namespace ferry::converters::families::granite_speech {
namespace {

constexpr const char* kEncoder = "encoder_config";
constexpr const char* kProjector = "projector_config";
constexpr const char* kContext = "context_size";
constexpr const char* kJoined = "cat_hidden_layers";
constexpr const char* kStateSize = "encoder_hidden_size";
constexpr IntRange kPairRange = {1, 2048}, kFactorOfWidth = {1, 64}, kBlockRange = {1, 1024},
                   kDistanceRange = {1, 1 << 16}, kWindowRange = {1, 1024},
                   kPlaceholderRange = {0, INT32_MAX};
// The most values of a table or of padding that a program holds.
constexpr int64_t kMostTable = int64_t{1} << 24;

constexpr const char* kOuterDefaults =
    R"({"encoder_config": {}, "projector_config": {}, "audio_token_index": 49155,
        "downsample_rate": 5, "window_size": 15})";
constexpr const char* kEncoderDefaults =
    R"({"input_dim": 160, "num_layers": 10, "hidden_dim": 1024, "feedforward_mult": 4,
        "num_heads": 8, "output_dim": 42, "context_size": 200, "max_pos_emb": 512,
        "conv_kernel_size": 15, "conv_expansion_factor": 2})";
constexpr const char* kProjectorDefaults =
    R"({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "layer_norm_eps": 1e-12, "cross_attention_frequency": 2,
        "encoder_hidden_size": 1408})";

const KeyNames kEncoderNames[] = {{"hidden_dim", {"hidden_dim", "hidden_size"}},
                                  {"num_layers", {"num_layers", "num_hidden_layers"}},
                                  {"num_heads", {"num_heads", "num_attention_heads"}},
                                  {"input_dim", {"input_dim", "num_mel_bins"}}};
const KeyNames kPlaceholderNames[] = {
    {"audio_token_index", {"audio_token_index", "audio_token_id"}}};

// Reads a part of the outer config, which must be of this type where it states one.
Result<JsonFields> part_of(const JsonFields& outer, const char* key, std::string_view type) {
  auto fields = FERRY_TRY(outer.object_or_default(key));
  if (!fields) return outer.bad(key, "is missing");
  const auto stated = FERRY_TRY(fields->text("model_type"));
  if (!stated || *stated == type) return *fields;
  return fields->error(ErrorCode::kUnsupported, "model_type",
                       fmt::format("is {}; {} is supported", quoted(*stated), type));
}

Result<int64_t> multiple_of(const JsonFields& fields, const char* key, int64_t width) {
  const int64_t factor = FERRY_TRY(fields.required(key, kFactorOfWidth));
  if (factor * width <= kSizeRange.max) return factor * width;
  return fields.bad(key, fmt::format("is {}: too much for a width of {}", factor, width));
}

Status read_near_rows(const JsonFields& fields, GraniteAudioConfig& out) {
  out.farthest = FERRY_TRY(fields.required("max_pos_emb", kDistanceRange));
  out.block = FERRY_TRY(fields.required(kContext, kBlockRange));
  if (out.block <= out.farthest) return {};
  return fields.bad(kContext,
                    fmt::format("is {}, more than max_pos_emb {}", out.block, out.farthest));
}

Status read_encoder(const JsonFields& fields, AudioConfig& audio) {
  GraniteAudioConfig& out = *audio.granite;
  const int64_t width = FERRY_TRY(fields.required("hidden_dim", kSizeRange));
  audio.to_rows->width = width;
  audio.mel_bins = FERRY_TRY(fields.required("input_dim", kPairRange));
  audio.num_layers = FERRY_TRY(fields.required("num_layers", kLayerRange));
  audio.num_heads = FERRY_TRY(fields.required("num_heads", kHeadRange));
  if (audio.num_heads > width) {
    return fields.bad("num_heads",
                      fmt::format("is {}, more than hidden_dim {}", audio.num_heads, width));
  }
  audio.head_dim = FERRY_TRY(fields.integer_or("dim_head", kHeadDimRange, width / audio.num_heads));
  audio.intermediate_size = FERRY_TRY(multiple_of(fields, "feedforward_mult", width));
  audio.activation = Activation::kSilu;
  out.inner = FERRY_TRY(multiple_of(fields, "conv_expansion_factor", width));
  out.time_kernel = FERRY_TRY(fields.required("conv_kernel_size", kConvRange));
  out.labels = FERRY_TRY(fields.required("output_dim", kSizeRange));
  FERRY_RETURN_IF_ERROR(read_near_rows(fields, out));
  const int64_t most = std::max(out.block * width, out.time_kernel * out.inner);
  const bool fits = most <= kMostTable && (2 * out.farthest + 1) * audio.head_dim <= kMostTable &&
                    audio.num_heads * audio.head_dim <= kSizeRange.max / 2;
  if (fits) return {};
  return fields.bad("hidden_dim", fmt::format("is {}: too wide for blocks of {} rows, kernels of {}"
                                              " and heads of {}",
                                              width, out.block, out.time_kernel, audio.head_dim));
}

// A state that is listed twice is there once, which is narrower than the projector.
Status read_joined(const JsonFields& fields, AudioConfig& audio) {
  const auto states =
      FERRY_TRY(fields.integers(kJoined, {0, std::max<int64_t>(audio.num_layers - 1, 0)}));
  if (!states) return {};
  audio.granite->joined = *states;
  std::ranges::sort(audio.granite->joined);
  if (std::ranges::adjacent_find(audio.granite->joined) == audio.granite->joined.end()) return {};
  return fields.bad(kJoined, "has a number twice");
}

Status read_projector(const JsonFields& outer, const JsonFields& fields, AudioConfig& audio) {
  WindowProjectorConfig& out = audio.granite->projector;
  out.hidden_size = FERRY_TRY(fields.required("hidden_size", kSizeRange));
  out.intermediate_size = FERRY_TRY(fields.required("intermediate_size", kSizeRange));
  out.num_layers = FERRY_TRY(fields.required("num_hidden_layers", kLayerRange));
  out.num_heads = FERRY_TRY(fields.required("num_attention_heads", kHeadRange));
  out.frequency = FERRY_TRY(fields.required("cross_attention_frequency", kLayerRange));
  out.activation = FERRY_TRY(read_activation(fields, "hidden_act", "gelu"));
  out.norm_eps = FERRY_TRY(fields.number_or("layer_norm_eps", kEpsRange, out.norm_eps));
  out.text_layers = FERRY_TRY(fields.flag_or("use_qformer_text_input", false));
  if (out.hidden_size % out.num_heads != 0) {
    return fields.bad("num_attention_heads", fmt::format("is {}, which does not divide {}",
                                                         out.num_heads, out.hidden_size));
  }
  const int64_t states = audio.to_rows->width * (std::ssize(audio.granite->joined) + 1);
  const int64_t stated = FERRY_TRY(fields.required(kStateSize, kSizeRange));
  if (stated != states) {
    return fields.bad(kStateSize,
                      fmt::format("is {}, the encoder gives states of {}", stated, states));
  }
  out.window = FERRY_TRY(outer.required("window_size", kWindowRange));
  const int64_t rate = FERRY_TRY(outer.required("downsample_rate", kWindowRange));
  out.queries = out.window / rate;
  if (out.window % rate != 0) {
    return outer.error(ErrorCode::kUnsupported, "downsample_rate",
                       fmt::format("is {}, which does not divide window_size {}: not supported",
                                   rate, out.window));
  }
  if (out.window * states <= kMostTable && out.queries * out.hidden_size <= kMostTable) return {};
  return outer.bad("window_size",
                   fmt::format("is {}: too many for states of {}", out.window, states));
}

Status read_parts(JsonFields outer, std::string_view encoder, bool joins, ModelConfig& config) {
  outer.set_names(kPlaceholderNames);
  AudioConfig& audio = config.audio.emplace();
  audio.to_rows.emplace();
  audio.granite.emplace();
  JsonFields fields = FERRY_TRY(part_of(outer, kEncoder, encoder));
  const nlohmann::json encoder_defaults = nlohmann::json::parse(kEncoderDefaults);
  fields.set_defaults(encoder_defaults);
  fields.set_names(kEncoderNames);
  FERRY_RETURN_IF_ERROR(read_encoder(fields, audio));
  if (joins) FERRY_RETURN_IF_ERROR(read_joined(fields, audio));
  JsonFields projector = FERRY_TRY(part_of(outer, kProjector, "blip_2_qformer"));
  const nlohmann::json projector_defaults = nlohmann::json::parse(kProjectorDefaults);
  projector.set_defaults(projector_defaults);
  FERRY_RETURN_IF_ERROR(read_projector(outer, projector, audio));
  // The reference computes with an adapter beside the model where a prompt has sounds, and without
  // it where it has none. The flag changes nothing but a warning of the reference.
  FERRY_TRY(outer.flag("has_lora_adapter"));
  audio.to_rows->has_adapter = true;
  audio.to_rows->token_id = FERRY_TRY(outer.required("audio_token_index", kPlaceholderRange));
  // A placeholder that the model itself gives has the embedding of token 0.
  config.padded_ids.push_back(audio.to_rows->token_id);
  config.pad_id = 0;
  return {};
}

Status read_sound(const JsonFields& outer, ModelConfig& config) {
  return read_parts(outer, "granite_speech_encoder", /*joins=*/false, config);
}
Status read_plus(const JsonFields& outer, ModelConfig& config) {
  return read_parts(outer, "granite_speech_plus_encoder", /*joins=*/true, config);
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, granite_audio_rules(prefix + "encoder.", config),
                  window_projector_rules(prefix + "projector.", config)});
  }
  return all;
}

VisionType type_of(std::string_view name, Status (*read)(const JsonFields&, ModelConfig&)) {
  return {.name = name,
          .text_type = "granite",
          .tied = true,
          .defaults = kOuterDefaults,
          .read_sound = read,
          .plain_head = true};
}

}  // namespace

const VisionFamily kFamily = {
    .types = {type_of("granite_speech", read_sound), type_of("granite_speech_plus", read_plus)},
    .text_types = {"granite", "granitemoehybrid"},
    .text_prefixes = {"language_model.model.", "model.language_model."},
    .heads = {"language_model.lm_head.weight", "lm_head.weight"},
    .rules = rules};

}  // namespace ferry::converters::families::granite_speech
