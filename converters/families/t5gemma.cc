// T5Gemma: a text encoder and a decoder of Gemma 2's layers, each with sizes of its own. Layers of
// the decoder attend to the output of the encoder between attention and MLP, with norms before and
// after this block too. In the encoder a window reaches in both directions.
// Source: transformers, models/t5gemma/modeling_t5gemma.py, with its eager attention.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/source_encoder.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::t5gemma {
namespace {

// The reference sets or does not read the keys that are only looked up here.
Status read(const JsonFields& fields, ModelConfig& config) {
  if (!config.only_encodes) FERRY_RETURN_IF_ERROR(check_states_true(fields, "is_causal"));
  for (const char* key : {"is_decoder", "is_causal", "cross_attention_hidden_size",
                          "tie_word_embeddings", "dropout_rate"}) {
    (void)fields.find(key);
  }
  return gemma2::kFamily.types.front().read(fields, config);
}

using Names = std::vector<std::pair<std::string, std::string>>;

// Rules of the matrices of an attention: SOURCE.q_proj becomes TARGET.wq.
std::vector<KeyRule> attention_rules(const std::string& source, const std::string& target,
                                     bool bias) {
  std::vector<KeyRule> rules;
  for (const char* part : {"q", "k", "v", "o"}) {
    const std::string from = fmt::format("{}.{}_proj", source, part);
    const std::string to = fmt::format("{}.w{}", target, part);
    rules = concat({rules, parameter_rules("", bias, {{from.c_str(), to.c_str()}})});
  }
  return rules;
}

// Rules of the layers of one part, whose keys begin with `source`.
std::vector<KeyRule> layer_rules(const ModelConfig& part, const std::string& source,
                                 const std::string& target, bool decoder) {
  const std::string from = source + "layers.{i}.", to = target + "layers.{i}.";
  Names norms = {{"pre_self_attn_layernorm", "attention_norm"},
                 {"post_self_attn_layernorm", "post_attention_norm"},
                 {"pre_feedforward_layernorm", "ffn_norm"},
                 {"post_feedforward_layernorm", "post_ffn_norm"}};
  std::vector<KeyRule> rules =
      attention_rules(from + "self_attn", to + "attention", part.attention_bias);
  if (decoder) {
    norms.insert(norms.end(), {{"pre_cross_attn_layernorm", "cross_norm"},
                               {"post_cross_attn_layernorm", "post_cross_norm"}});
    rules = concat(
        {rules, attention_rules(from + "cross_attn", to + "cross_attention", part.attention_bias)});
  }
  for (const auto& [stored, made] : norms) {
    const std::string key = stored + ".weight", name = to + made + ".weight";
    rules = concat({rules, shifted_norm_rules(from, {{key.c_str(), name.c_str()}})});
  }
  for (const auto& [stored, made] :
       Names{{"gate_proj", "w1"}, {"down_proj", "w2"}, {"up_proj", "w3"}}) {
    const std::string key = "mlp." + stored + ".weight";
    const std::string name = to + "feed_forward." + made + ".weight";
    rules = concat({rules, rename_rules(from, {{key.c_str(), name.c_str()}})});
  }
  for (KeyRule& rule : rules) rule.layers = part.num_layers;
  return rules;
}

std::vector<KeyRule> part_rules(const ModelConfig& part, const std::string& source,
                                const std::string& target, bool decoder) {
  const std::string table = target + "tok_embeddings.weight", norm = target + "norm.weight";
  return concat({layer_rules(part, source, target, decoder),
                 rename_rules(source, {{"embed_tokens.weight", table.c_str()}}),
                 shifted_norm_rules(source, {{"norm.weight", norm.c_str()}})});
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({part_rules(config.source_encoder(), prefix + "encoder.", kSourcePrefix,
                            /*decoder=*/false),
                 part_rules(config, prefix + "decoder.", "", /*decoder=*/true)});
}

DecoderStyle style(const ModelConfig& part) {
  return {.attention = {.qkv_bias = part.attention_bias, .output_bias = part.attention_bias},
          .norm = NormKind::kRms,
          .residuals = Residuals::kNormsAround,
          .gated = true};
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle of_decoder = style(config);
  of_decoder.cross_attention = true;
  return build_styled_decoder(config, options, of_decoder);
}

Result<Methods> build_encoder(const ModelConfig& config, const BuildOptions& options) {
  return build_source_encoder(config, options, style(config.source_encoder()));
}

// The class of both parts.
constexpr std::string_view kPart = "t5_gemma_module";

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "t5gemma",
               .part = {.key = "decoder", .type = kPart},
               .source_part = {.key = "encoder", .type = kPart},
               .defaults = R"({"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
                               "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
                               "num_hidden_layers": 26, "num_attention_heads": 8,
                               "num_key_value_heads": 4, "head_dim": 256,
                               "max_position_embeddings": 8192,
                               "hidden_activation": "gelu_pytorch_tanh",
                               "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
                               "final_logit_softcapping": 30.0, "sliding_window": 4096,
                               "sliding_window_pattern": 2})",
               .names = {{"sliding_window_pattern", {}}},  // layers always alternate
               .activation_key = "hidden_activation",
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .attention_bias = true,
               .read = read}},
    .components = {
        {.heads = {"lm_head.out_proj.weight"}, .rules = rules, .build = build},
        {.role = kSourceEncoderRole, .prefixes = {}, .heads = {}, .build = build_encoder}}};

}  // namespace ferry::converters::families::t5gemma
