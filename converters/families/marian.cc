// Marian: a text encoder and a decoder for translation, with layer norms behind the blocks and
// sines and cosines of the position. Source: transformers, models/marian/modeling_marian.py.

#include <fmt/format.h>

#include <cmath>

#include "converters/blocks/source_encoder.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::marian {
namespace {

constexpr std::string_view kEncoderLayers = "all_encoder_layers";
constexpr std::string_view kEncoderHeads = "all_encoder_heads";
constexpr const char* kShares = "share_encoder_decoder_embeddings";
constexpr const char* kTies = "tie_word_embeddings";
constexpr const char* kDecoderVocabulary = "decoder_vocab_size";
// Members of ModelConfig::numbers: 1 where the checkpoint stores the positions of the decoder or of
// the encoder.
constexpr const char* kStoredPositions = "stored_positions";
constexpr const char* kSourcePositions = "stored_source_positions";

// The two parts and the head share one table. A config that says otherwise is another model, of
// which there are hardly any.
Status check_one_table(const JsonFields& fields, const ModelConfig& config) {
  for (const char* key : {kShares, kTies}) {
    if (FERRY_TRY(fields.flag_or(key, true))) continue;
    return fields.error(ErrorCode::kUnsupported, key,
                        "is false: encoder, decoder and head of different tables are not "
                        "supported");
  }
  const int64_t own =
      FERRY_TRY(fields.integer_or(kDecoderVocabulary, {0, kSizeRange.max}, config.vocab_size));
  if (own == 0 || own == config.vocab_size) return {};
  return fields.error(
      ErrorCode::kUnsupported, kDecoderVocabulary,
      fmt::format("is {}, another number than vocab_size {}", own, config.vocab_size));
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_encoder_decoder(fields));
  FERRY_RETURN_IF_ERROR(check_one_table(fields, config));
  (void)fields.find("is_decoder");  // nothing reads it in the class with both parts
  SourceConfig& source = config.source.emplace();
  source.hidden_size = config.hidden_size;
  source.num_layers = FERRY_TRY(fields.required(kEncoderLayers, kLayerRange));
  source.num_heads = FERRY_TRY(fields.required(kEncoderHeads, kHeadRange));
  source.intermediate_size = FERRY_TRY(fields.required("encoder_ffn_dim", kSizeRange));
  source.max_positions = config.max_positions;
  source.bias = true;
  config.numbers[kHeadBias] = 1;
  if (config.hidden_size % source.num_heads != 0) {
    return fields.bad("encoder_attention_heads",
                      fmt::format("is {}, which does not divide d_model {}", source.num_heads,
                                  config.hidden_size));
  }
  source.head_dim = config.hidden_size / source.num_heads;
  // The epsilon of the layer norms is that of the class, whatever the config says.
  config.rms_norm_eps = 1e-5;
  if (FERRY_TRY(fields.flag_or("scale_embedding", false))) {
    config.scalars.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  }
  return {};
}

// A checkpoint may store the positions, and the bias of the logits, which are zeros where it does
// not.
void observe(const HasKey& has, ModelConfig& config) {
  const bool encoder = has("encoder.embed_positions.weight");
  const bool decoder = has("decoder.embed_positions.weight");
  config.numbers[kStoredPositions] = (decoder ? 1 : 0);
  config.numbers[kSourcePositions] = (encoder ? 1 : 0);
  config.numbers[kHeadBias] = has("final_logits_bias") ? 1 : 0;
}

std::vector<KeyRule> layer_rules(const std::string& source, const std::string& target,
                                 int64_t layers, bool decoder) {
  std::vector<std::pair<std::string, std::string>> names = {
      {"self_attn.q_proj", "attention.wq"},
      {"self_attn.k_proj", "attention.wk"},
      {"self_attn.v_proj", "attention.wv"},
      {"self_attn.out_proj", "attention.wo"},
      {"self_attn_layer_norm", "attention_norm"},
      {"fc1", "feed_forward.w1"},
      {"fc2", "feed_forward.w2"},
      {"final_layer_norm", "ffn_norm"}};
  if (decoder) {
    names.insert(names.end(), {{"encoder_attn.q_proj", "cross_attention.wq"},
                               {"encoder_attn.k_proj", "cross_attention.wk"},
                               {"encoder_attn.v_proj", "cross_attention.wv"},
                               {"encoder_attn.out_proj", "cross_attention.wo"},
                               {"encoder_attn_layer_norm", "cross_norm"}});
  }
  std::vector<KeyRule> rules;
  for (const auto& [from, to] : names) {
    const std::string name = target + "layers.{i}." + to;
    rules = concat(
        {rules, tower_rules(source + "layers.{i}.", layers, {{from.c_str(), name.c_str()}})});
  }
  return rules;
}

// final_logits_bias [1, V] becomes the bias [V] of the head.
KeyRule bias_rule() {
  KeyRule rule;
  rule.name = "bias of the logits";
  rule.source = "final_logits_bias";
  rule.expected_shape = [](const ModelConfig& c) { return Shape{1, c.vocab_size}; };
  rule.targets = {{.name = "output.bias",
                   .rows = [](const ModelConfig&) { return RowOrder{run_piece(0, 0, 1)}; },
                   .shape = [](const ModelConfig& c) { return Shape{c.vocab_size}; }}};
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  return concat(
      {tower_renames(prefix, 0,
                     {{"shared.weight", kSharedTable},
                      {"encoder.embed_tokens.weight", "source.tok_embeddings.weight"},
                      {"decoder.embed_tokens.weight", "tok_embeddings.weight"},
                      {"encoder.embed_positions.weight", "source.position_embeddings.weight"},
                      {"decoder.embed_positions.weight", "position_embeddings.weight"}}),
       layer_rules(encoder, kSourcePrefix, config.source->num_layers, /*decoder=*/false),
       layer_rules(decoder, "", config.num_layers, /*decoder=*/true),
       {bias_rule()}});
}

DecoderStyle style(const ModelConfig& config, bool stored_positions) {
  return {.attention = {.qkv_bias = true, .output_bias = true},
          .residuals = Residuals::kNormAfter,
          .mlp_bias = true,
          .head_bias = config.number(kHeadBias) != 0,
          .final_norm = false,
          .learned_positions = stored_positions,
          .sine_table = !stored_positions};
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle of_decoder = style(config, config.number(kStoredPositions) != 0);
  of_decoder.cross_attention = true;
  return build_styled_decoder(config, options, of_decoder);
}

Result<Methods> build_encoder(const ModelConfig& config, const BuildOptions& options) {
  return build_source_encoder(config, options, style(config, config.number(kSourcePositions) != 0));
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "marian",
               .defaults = R"({"vocab_size": 58101, "hidden_size": 1024, "all_encoder_layers": 12,
                               "all_encoder_heads": 16, "encoder_ffn_dim": 4096,
                               "num_hidden_layers": 12, "num_attention_heads": 16,
                               "intermediate_size": 4096, "max_position_embeddings": 1024,
                               "activation_function": "gelu", "eos_token_id": 0,
                               "decoder_start_token_id": 58100, "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"hidden_size", "d_model"}},
                         {kEncoderLayers, {"num_hidden_layers", "encoder_layers"}},
                         {kEncoderHeads, {"num_attention_heads", "encoder_attention_heads"}},
                         {"num_hidden_layers", {"decoder_layers"}},
                         {"num_attention_heads", {"decoder_attention_heads"}},
                         {"intermediate_size", {"decoder_ffn_dim"}}},
               .unread = {"num_key_value_heads", "head_dim", "rms_norm_eps"},
               .activation_key = "activation_function",
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components =
        {{.rules = rules, .build = build},
         {.role = kSourceEncoderRole, .prefixes = {}, .heads = {}, .build = build_encoder}},
    .observe = observe};

}  // namespace ferry::converters::families::marian
