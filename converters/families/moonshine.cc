// Moonshine: an audio encoder over samples, with RoPE over neighbouring dimensions, and a decoder
// with a gated MLP whose layers attend to the encoder's output between attention and MLP. Source:
// transformers, models/moonshine/modeling_moonshine.py.

#include <fmt/format.h>

#include "converters/blocks/decoder.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::moonshine {
namespace {

constexpr const char* kEncoderHeads = "encoder_num_attention_heads";
constexpr const char* kEncoderKvHeads = "encoder_num_key_value_heads";
constexpr const char* kDecoderKvHeads = "decoder_num_key_value_heads";

// The reference views the queries of all layers as the key-value heads of the decoder, so that all
// numbers of heads are one.
Status check_equal_heads(const JsonFields& fields, const ModelConfig& config) {
  const auto differs = [&](const char* key, int64_t number) {
    return fields.error(ErrorCode::kUnsupported, key,
                        fmt::format("is {}, another number than decoder_num_attention_heads {}: "
                                    "the reference fails",
                                    number, config.num_heads));
  };
  const int64_t of_encoder = config.audio->num_heads;
  if (of_encoder != config.num_heads) return differs(kEncoderHeads, of_encoder);
  const int64_t kv_heads = FERRY_TRY(fields.integer_or(kEncoderKvHeads, kHeadRange, of_encoder));
  if (kv_heads != config.num_heads) return differs(kEncoderKvHeads, kv_heads);
  return config.num_kv_heads == config.num_heads ? Status()
                                                 : differs(kDecoderKvHeads, config.num_kv_heads);
}

Status read(const JsonFields& fields, ModelConfig& config) {
  AudioConfig& audio = config.audio.emplace();
  audio.num_layers = FERRY_TRY(fields.required("encoder_num_hidden_layers", kLayerRange));
  audio.num_heads = FERRY_TRY(fields.required(kEncoderHeads, kHeadRange));
  audio.head_dim = config.head_dim;
  audio.intermediate_size = config.intermediate_size;
  audio.activation = FERRY_TRY(read_activation(fields, "encoder_hidden_act", "gelu"));
  audio.norm_bias = audio.output_bias = false;
  audio.query_bias = audio.key_bias = audio.value_bias = config.attention_bias;
  config.mlp_bias = true;
  config.rms_norm_eps = 1e-5;
  return check_equal_heads(fields, config);
}

// Rules for q, k, v and o of an attention without RoPE.
std::vector<KeyRule> plain_rules(const std::string& source, const std::string& target, bool bias) {
  std::vector<KeyRule> rules;
  for (const char* part : {"q", "k", "v", "o"}) {
    const std::string from = fmt::format("{}.{}_proj", source, part);
    const std::string to = fmt::format("{}.w{}", target, part);
    const bool has_bias = bias && part != std::string_view("o");
    rules = concat({rules, parameter_rules("", has_bias, {{from.c_str(), to.c_str()}})});
  }
  return rules;
}

// Rules for q, k, v and o of an attention whose RoPE rotates neighbouring dimensions.
std::vector<KeyRule> rotated_rules(const std::string& source, const std::string& target, bool bias,
                                   int64_t layers) {
  std::vector<KeyRule> rules = plain_rules(source, target, bias);
  std::erase_if(rules, [](const KeyRule& rule) {
    return rule.source.find(".q_proj.") != std::string::npos ||
           rule.source.find(".k_proj.") != std::string::npos;
  });
  rules = concat({paired_rope_rules(source, bias, target), rules});
  for (KeyRule& rule : rules) rule.layers = layers;
  return rules;
}

std::vector<KeyRule> encoder_rules(const std::string& prefix, const ModelConfig& config) {
  const int64_t layers = config.audio->num_layers;
  const std::string layer = prefix + "layers.{i}.";
  return concat(
      {tower_renames(
           prefix, 0,
           {{"conv1.weight", "audio.conv1.weight"}, {"layer_norm.weight", "audio.norm.weight"}}),
       tower_rules(
           prefix, 0,
           {{"conv2", "audio.conv2"}, {"conv3", "audio.conv3"}, {"groupnorm", "audio.group_norm"}}),
       tower_renames(layer, layers,
                     {{"input_layernorm.weight", "audio.layers.{i}.attention_norm.weight"},
                      {"post_attention_layernorm.weight", "audio.layers.{i}.ffn_norm.weight"}}),
       rotated_rules(layer + "self_attn", "audio.layers.{i}.attention", config.attention_bias,
                     layers),
       tower_rules(layer, layers,
                   {{"mlp.fc1", "audio.layers.{i}.feed_forward.w1"},
                    {"mlp.fc2", "audio.layers.{i}.feed_forward.w2"}})});
}

// Rules for fc1, whose rows are those of the inner values, then those of their gates.
std::vector<KeyRule> up_gate_rules(const std::string& source) {
  std::vector<KeyRule> rules;
  for (const std::string parameter : {".weight", ".bias"}) {
    KeyRule& rule = rules.emplace_back();
    rule.name = "split fc1 [up | gate]";
    rule.source = source + parameter;
    rule.expected_rows = [](const ModelConfig& c) { return 2 * c.intermediate_size; };
    for (const int64_t part : {0, 1}) {
      rule.targets.push_back(
          {.name = (part == 0 ? "layers.{i}.feed_forward.w3" : "layers.{i}.feed_forward.w1") +
                   parameter,
           .rows = [part](const ModelConfig& c) {
             return RowOrder{run_piece(0, part * c.intermediate_size, c.intermediate_size)};
           }});
    }
  }
  return rules;
}

std::vector<KeyRule> decoder_rules(const std::string& prefix, const ModelConfig& config) {
  const std::string layer = prefix + "layers.{i}.";
  return concat(
      {rename_rules(prefix,
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                     {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.cross_norm.weight"},
                     {"layers.{i}.final_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                     {"norm.weight", "norm.weight"}}),
       rotated_rules(layer + "self_attn", "layers.{i}.attention", config.attention_bias, 0),
       plain_rules(layer + "encoder_attn", "layers.{i}.cross_attention", config.attention_bias),
       up_gate_rules(layer + "mlp.fc1"),
       parameter_rules(layer, /*bias=*/true, {{"mlp.fc2", "layers.{i}.feed_forward.w2"}})});
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {encoder_rules(prefix + "encoder.", config), decoder_rules(prefix + "decoder.", config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = config.attention_bias},
                               .norm = NormKind::kLayerNoBias,
                               .gated = true,
                               .cross_attention = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "moonshine",
               .defaults = R"({"vocab_size": 32768, "hidden_size": 288, "intermediate_size": 1152,
                               "encoder_num_hidden_layers": 6, "num_hidden_layers": 6,
                               "encoder_num_attention_heads": 8, "num_attention_heads": 8,
                               "max_position_embeddings": 512, "partial_rotary_factor": 0.9,
                               "bos_token_id": 1, "eos_token_id": 2,
                               "tie_word_embeddings": true})",
               .names = {{"num_hidden_layers", {"decoder_num_hidden_layers", "num_hidden_layers"}},
                         {"num_attention_heads",
                          {"decoder_num_attention_heads", "num_attention_heads"}},
                         {"num_key_value_heads", {kDecoderKvHeads, "num_key_value_heads"}},
                         {"hidden_act", {"decoder_hidden_act", "hidden_act"}}},
               .unread = {"rms_norm_eps"},
               .partial_rope = true,
               .attention_bias = true,
               .read = read}},
    .components = {{.heads = {"proj_out.weight"}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families::moonshine
