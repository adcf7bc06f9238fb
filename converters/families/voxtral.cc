// Voxtral: an encoder of Whisper over windows of log-mel frames, of whose output a linear, an
// activation and a linear make rows of a text decoder of Llama. Source: transformers,
// models/voxtral/modeling_voxtral.py.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "converters/families/vision_families.h"
#include "converters/keys/audio_encoder_keys.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters::families::voxtral {
namespace {

constexpr const char* kAudio = "audio_config";
constexpr IntRange kMelRange = {1, 1024}, kRowRange = {2, 1 << 16}, kIdRange = {0, INT32_MAX};

constexpr const char* kTextDefaults =
    R"({"vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 30, "num_key_value_heads": 8, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 100000000.0, "head_dim": 128})";
constexpr const char* kAudioDefaults =
    R"({"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
        "num_attention_heads": 20, "num_mel_bins": 128, "max_source_positions": 1500})";

const KeyNames kNames[] = {
    {"hidden_size", {"d_model", "hidden_size"}},
    {"intermediate_size", {"encoder_ffn_dim", "intermediate_size"}},
    {"num_hidden_layers", {"encoder_layers", "num_hidden_layers"}},
    {"num_attention_heads", {"encoder_attention_heads", "num_attention_heads"}}};

// As many rows of the encoder become one as its MLP is wider than a row. The reference puts all
// windows of a sound behind each other, so that groups must not cross them.
Status read_groups(const JsonFields& fields, AudioConfig& audio) {
  SoundRowsConfig& rows = *audio.to_rows;
  rows.group = audio.intermediate_size / rows.width;
  if (rows.group < 1 || rows.group * rows.width != audio.intermediate_size) {
    return fields.error(ErrorCode::kUnsupported, "intermediate_size",
                        fmt::format("is {}, not whole rows of {}: not supported",
                                    audio.intermediate_size, rows.width));
  }
  if (audio.positions % rows.group == 0) return {};
  return fields.error(ErrorCode::kUnsupported, "max_source_positions",
                      fmt::format("is {}, not whole groups of {} rows: not supported",
                                  audio.positions, rows.group));
}

Status read_encoder(const JsonFields& fields, AudioConfig& audio) {
  SoundRowsConfig& rows = *audio.to_rows;
  rows.width = FERRY_TRY(fields.required("hidden_size", kSizeRange));
  audio.mel_bins = FERRY_TRY(fields.required("num_mel_bins", kMelRange));
  audio.num_layers = FERRY_TRY(fields.required("num_hidden_layers", kLayerRange));
  audio.num_heads = FERRY_TRY(fields.required("num_attention_heads", kHeadRange));
  audio.intermediate_size = FERRY_TRY(fields.required("intermediate_size", kSizeRange));
  audio.positions = FERRY_TRY(fields.required("max_source_positions", kRowRange));
  audio.activation = FERRY_TRY(read_activation(fields, "activation_function", "gelu"));
  if (rows.width % audio.num_heads != 0) {
    return fields.bad("num_attention_heads",
                      fmt::format("is {}, which does not divide {}", audio.num_heads, rows.width));
  }
  audio.head_dim = rows.width / audio.num_heads;
  return read_groups(fields, audio);
}

Status read_sound(const JsonFields& outer, ModelConfig& config) {
  AudioConfig& audio = config.audio.emplace();
  audio.to_rows.emplace();
  auto fields = FERRY_TRY(outer.object_or_default(kAudio));
  if (!fields) return outer.bad(kAudio, "is missing");
  const std::string type = FERRY_TRY(fields->text("model_type")).value_or("voxtral_encoder");
  if (type != "voxtral_encoder") {
    return fields->error(ErrorCode::kUnsupported, "model_type",
                         fmt::format("is {}; voxtral_encoder is supported", quoted(type)));
  }
  const nlohmann::json defaults = nlohmann::json::parse(kAudioDefaults);
  fields->set_defaults(defaults);
  fields->set_names(kNames);
  FERRY_RETURN_IF_ERROR(read_encoder(*fields, audio));
  audio.to_rows->token_id = FERRY_TRY(outer.required("audio_token_id", kIdRange));
  audio.to_rows->activation = FERRY_TRY(read_activation(outer, "projector_hidden_act", "gelu"));
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  std::vector<KeyRule> all;
  for (const std::string prefix : {"", "model."}) {
    all = concat({all, whisper_encoder_rules(prefix + "audio_tower.", config),
                  tower_renames(prefix + "multi_modal_projector.", 0,
                                {{"linear_1.weight", "audio.connector.w1.weight"},
                                 {"linear_2.weight", "audio.connector.w2.weight"}})});
  }
  return all;
}

}  // namespace

const VisionFamily kFamily = {.types = {{.name = "voxtral",
                                         .text_type = "llama",
                                         .defaults = R"({"audio_config": {}})",
                                         .read_sound = read_sound,
                                         .text_defaults = kTextDefaults,
                                         .never_ties = true}},
                              .text_types = {"llama"},
                              .text_prefixes = {"language_model.model.", "model.language_model."},
                              .heads = {"language_model.lm_head.weight", "lm_head.weight"},
                              .rules = rules};

}  // namespace ferry::converters::families::voxtral
