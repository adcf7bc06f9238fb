// XGLM: layer norms, an MLP without a gate, and sines and cosines as positions.
// Source: transformers, models/xglm/modeling_xglm.py.

#include <cmath>

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::xglm {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.flag_or("add_cross_attention", false))) {
    return fields.error(ErrorCode::kUnsupported, "add_cross_attention", "is true: not supported");
  }
  if (FERRY_TRY(fields.flag_or("scale_embedding", false))) {
    config.scalars.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  }
  const auto pad = FERRY_TRY(fields.integer("pad_token_id", kTokenRange));
  config.numbers[kPlainPosition] = pad.value_or(-1);
  if (config.hidden_size % 2 == 0 && config.hidden_size >= 4) return {};
  return fields.error(ErrorCode::kUnsupported, "hidden_size",
                      "is odd or 2: not supported with sines and cosines as positions");
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat({attention_rules(prefix, /*bias=*/true, "out_proj"),
                 plain_mlp_rules(prefix, /*bias=*/true, "fc1", "fc2"),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"layers.{i}.self_attn_layer_norm", "layers.{i}.attention_norm"},
                                  {"layers.{i}.final_layer_norm", "layers.{i}.ffn_norm"},
                                  {"layer_norm", "norm"}}),
                 rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}}),
                 {drop_rule(prefix + "embed_positions.weights", "derived from the config")}});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = true, .output_bias = true}, .mlp_bias = true, .sinusoids = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "xglm",
               .defaults = R"({"pad_token_id": 1, "vocab_size": 256008, "hidden_size": 1024,
                               "intermediate_size": 4096, "num_hidden_layers": 24,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "activation_function": "gelu", "scale_embedding": true,
                               "rms_norm_eps": 1e-5, "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"hidden_size", "d_model"}},
                         {"num_hidden_layers", {"num_hidden_layers", "num_layers"}},
                         {"num_attention_heads", {"num_attention_heads", "attention_heads"}},
                         {"intermediate_size", {"ffn_dim"}}},
               .unread = {"rms_norm_eps", "num_key_value_heads", "head_dim"},
               .activation_key = "activation_function",
               .rope = RopeRule::kNone,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::xglm
