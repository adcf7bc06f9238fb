// Whisper: an audio encoder over log-mel frames, and a decoder with learned positions whose layers
// attend to the encoder's output between attention and MLP. Source: transformers,
// models/whisper/modeling_whisper.py.

#include <fmt/format.h>

#include "converters/blocks/decoder.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/keys/audio_encoder_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::whisper {
namespace {

constexpr std::string_view kEncoderLayersToo = "encoder_layers_too";
constexpr IntRange kMelRange = {1, 1024}, kRowRange = {2, 1 << 16};

Status read(const JsonFields& fields, ModelConfig& config) {
  AudioConfig& audio = config.audio.emplace();
  audio.mel_bins = FERRY_TRY(fields.required("num_mel_bins", kMelRange));
  audio.num_layers = FERRY_TRY(fields.required("encoder_layers", kLayerRange));
  audio.num_heads = FERRY_TRY(fields.required("encoder_attention_heads", kHeadRange));
  audio.intermediate_size = FERRY_TRY(fields.required("encoder_ffn_dim", kSizeRange));
  audio.positions = FERRY_TRY(fields.required("max_source_positions", kRowRange));
  // The class takes num_hidden_layers as another name of encoder_layers, and released configs state
  // both.
  const int64_t layers =
      FERRY_TRY(fields.integer_or(kEncoderLayersToo, kLayerRange, audio.num_layers));
  if (layers != audio.num_layers) {
    return fields.error(
        ErrorCode::kUnsupported, kEncoderLayersToo,
        fmt::format("is {}, another number than encoder_layers {}", layers, audio.num_layers));
  }
  if (config.hidden_size % audio.num_heads != 0) {
    return fields.bad("encoder_attention_heads",
                      fmt::format("is {}, which does not divide d_model {}", audio.num_heads,
                                  config.hidden_size));
  }
  audio.head_dim = config.hidden_size / audio.num_heads;
  audio.activation = config.activation;
  // The epsilon of the layer norms is that of the class, whatever the config says.
  config.rms_norm_eps = 1e-5;
  return {};
}

std::vector<KeyRule> decoder_rules(const std::string& prefix) {
  return concat(
      {rename_rules(
           prefix,
           {{"embed_tokens.weight", "tok_embeddings.weight"},
            {"embed_positions.weight", "position_embeddings.weight"},
            {"layers.{i}.self_attn.k_proj.weight", "layers.{i}.attention.wk.weight"},
            {"layers.{i}.encoder_attn.k_proj.weight", "layers.{i}.cross_attention.wk.weight"}}),
       parameter_rules(prefix, /*bias=*/true,
                       {{"layers.{i}.self_attn_layer_norm", "layers.{i}.attention_norm"},
                        {"layers.{i}.self_attn.q_proj", "layers.{i}.attention.wq"},
                        {"layers.{i}.self_attn.v_proj", "layers.{i}.attention.wv"},
                        {"layers.{i}.self_attn.out_proj", "layers.{i}.attention.wo"},
                        {"layers.{i}.encoder_attn_layer_norm", "layers.{i}.cross_norm"},
                        {"layers.{i}.encoder_attn.q_proj", "layers.{i}.cross_attention.wq"},
                        {"layers.{i}.encoder_attn.v_proj", "layers.{i}.cross_attention.wv"},
                        {"layers.{i}.encoder_attn.out_proj", "layers.{i}.cross_attention.wo"},
                        {"layers.{i}.final_layer_norm", "layers.{i}.ffn_norm"},
                        {"layers.{i}.fc1", "layers.{i}.feed_forward.w1"},
                        {"layers.{i}.fc2", "layers.{i}.feed_forward.w2"},
                        {"layer_norm", "norm"}})});
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {whisper_encoder_rules(prefix + "encoder.", config), decoder_rules(prefix + "decoder.")});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = true, .bare_keys = true, .output_bias = true},
       .mlp_bias = true,
       .learned_positions = true,
       .cross_attention = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "whisper",
               .defaults = R"({"vocab_size": 51865, "num_mel_bins": 80, "encoder_layers": 4,
                               "encoder_attention_heads": 6, "encoder_ffn_dim": 1536,
                               "num_hidden_layers": 4, "num_attention_heads": 6,
                               "intermediate_size": 1536, "hidden_size": 384,
                               "max_source_positions": 1500, "max_position_embeddings": 448,
                               "activation_function": "gelu", "bos_token_id": 50256,
                               "eos_token_id": 50256, "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"d_model", "hidden_size"}},
                         {kEncoderLayersToo, {"num_hidden_layers"}},
                         {"num_hidden_layers", {"decoder_layers"}},
                         {"num_attention_heads", {"decoder_attention_heads"}},
                         {"intermediate_size", {"decoder_ffn_dim"}},
                         {"max_position_embeddings", {"max_target_positions"}}},
               .unread = {"num_key_value_heads", "head_dim", "rms_norm_eps"},
               .activation_key = "activation_function",
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.heads = {"proj_out.weight"}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families::whisper
