// The audio encoder of Gemma 4: convolutions that make a row of four log-mel frames, layers of two
// half MLPs around attention to near rows and a convolution, and a linear; behind it an RMS norm
// and one linear. Source: transformers, models/gemma4/modeling_gemma4.py.
#include "converters/families/gemma4_audio.h"

#include <fmt/format.h>

#include <cfloat>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters::families {
namespace {

constexpr const char* kAudioPart = "audio_config";
constexpr const char* kLeft = "attention_context_left";
constexpr const char* kInvalid = "attention_invalid_logits_value";
constexpr IntRange kContextRange = {0, 1024}, kChunkRange = {1, 1024},
                   kAudioIdRange = {0, INT32_MAX};
constexpr FloatRange kCapRange = {1e-3, 1e6}, kGreatestRange = {1e-3, DBL_MAX};
// A score that is lower than all others by this has no part in a softmax in f32.
constexpr double kUnseen = 110.0;

constexpr const char* kAudioDefaults =
    R"({"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
        "hidden_act": "silu", "subsampling_conv_channels": [128, 32], "conv_kernel_size": 5,
        "residual_weight": 0.5, "attention_chunk_size": 12, "attention_context_left": 13,
        "attention_context_right": 0, "attention_logit_cap": 50.0,
        "attention_invalid_logits_value": -1e9, "use_clipped_linears": true,
        "rms_norm_eps": 1e-6, "gradient_clipping": 1e10, "output_proj_dims": 1536})";

Status read_channels(const JsonFields& fields, AudioConfig& audio) {
  constexpr const char* kChannels = "subsampling_conv_channels";
  const auto channels = FERRY_TRY(fields.integers(kChannels, {1, 1 << 14}));
  if (!channels || channels->size() != 2) return fields.bad(kChannels, "is no list of two numbers");
  for (size_t i = 0; i < 2; ++i) audio.usm->channels[i] = (*channels)[i];
  audio.mel_bins = audio.usm->mel_bins();
  if (audio.mel_bins > 0) return {};
  return fields.error(ErrorCode::kUnsupported, kChannels,
                      fmt::format("begins with {}: the reference makes no bins of frames of it",
                                  audio.usm->channels[0]));
}

Status read_audio_attention(const JsonFields& fields, UsmAudioConfig& out) {
  out.chunk = FERRY_TRY(fields.required("attention_chunk_size", kChunkRange));
  out.past = FERRY_TRY(fields.required(kLeft, kContextRange)) - 1;
  out.future = FERRY_TRY(fields.required("attention_context_right", kContextRange));
  if (out.past < 1) {
    return fields.error(ErrorCode::kUnsupported, kLeft,
                        fmt::format("is {}: a row does not attend to itself", out.past + 1));
  }
  out.cap = FERRY_TRY(fields.number_or("attention_logit_cap", kCapRange, out.cap));
  const double hidden = FERRY_TRY(fields.number_or(kInvalid, {-DBL_MAX, DBL_MAX}, -1e9));
  if (hidden <= -(out.cap + kUnseen)) return {};
  return fields.error(
      ErrorCode::kUnsupported, kInvalid,
      fmt::format("is {}: rows would attend to others than the config says", hidden));
}

Status read_audio_encoder(const JsonFields& fields, AudioConfig& audio) {
  UsmAudioConfig& out = audio.usm.emplace();
  FERRY_RETURN_IF_ERROR(read_usm_widths(fields, "num_attention_heads", audio));
  audio.num_layers = FERRY_TRY(fields.required("num_hidden_layers", kLayerRange));
  audio.activation = FERRY_TRY(read_activation(fields, "hidden_act", "silu"));
  FERRY_RETURN_IF_ERROR(read_channels(fields, audio));
  FERRY_RETURN_IF_ERROR(read_audio_attention(fields, out));
  FERRY_RETURN_IF_ERROR(check_usm_tables(fields, audio));
  out.time_kernel = FERRY_TRY(fields.required("conv_kernel_size", kConvRange));
  out.residual = FERRY_TRY(fields.number_or("residual_weight", {-1e6, 1e6}, out.residual));
  out.greatest = FERRY_TRY(fields.number_or("gradient_clipping", kGreatestRange, out.greatest));
  out.norm_eps = FERRY_TRY(fields.number_or("rms_norm_eps", kEpsRange, out.norm_eps));
  out.clips = FERRY_TRY(fields.flag_or("use_clipped_linears", out.clips));
  out.output_size = FERRY_TRY(fields.required("output_proj_dims", kSizeRange));
  return {};
}

}  // namespace

Status read_gemma4_sound(const JsonFields& outer, ModelConfig& config) {
  AudioConfig& audio = config.audio.emplace();
  audio.to_rows.emplace();
  auto fields = FERRY_TRY(outer.object(kAudioPart));
  if (!fields) return outer.bad(kAudioPart, "is missing");
  const std::string type = FERRY_TRY(fields->text("model_type")).value_or("gemma4_audio");
  if (type != "gemma4_audio") {
    return fields->error(ErrorCode::kUnsupported, "model_type",
                         fmt::format("is {}; gemma4_audio is supported", quoted(type)));
  }
  const nlohmann::json defaults = nlohmann::json::parse(kAudioDefaults);
  fields->set_defaults(defaults);
  FERRY_RETURN_IF_ERROR(read_audio_encoder(*fields, audio));
  audio.to_rows->token_id = FERRY_TRY(outer.required("audio_token_id", kAudioIdRange));
  return {};
}

}  // namespace ferry::converters::families
