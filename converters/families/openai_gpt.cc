// GPT (1): GPT-2 with norms behind the blocks and none at the end.
// Source: transformers, models/openai/modeling_openai.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::openai_gpt {
namespace {

// The class has activations of its own: gelu is the tanh approximation.
Status read(const JsonFields& fields, ModelConfig& config) {
  const std::string name = FERRY_TRY(fields.text("afn")).value_or("");
  if (name == "gelu") {
    config.activation = Activation::kGeluTanh;
  } else if (name == "relu") {
    config.activation = Activation::kRelu;
  } else if (name != "silu" && name != "swish") {
    return fields.error(ErrorCode::kUnsupported, "afn", "is none of gelu, relu, silu and swish");
  }
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "h.{i}.";
  return concat(
      {conv1d_rules(layer, config),
       derived_rules(layer + "attn."),
       parameter_rules(layer, /*bias=*/true,
                       {{"ln_1", "layers.{i}.attention_norm"}, {"ln_2", "layers.{i}.ffn_norm"}}),
       rename_rules(prefix, {{"tokens_embed.weight", "tok_embeddings.weight"},
                             {"positions_embed.weight", "position_embeddings.weight"}}),
       {drop_rule(prefix + "position_ids", "derived from the config")}});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = true, .output_bias = true},
                               .residuals = Residuals::kNormAfter,
                               .mlp_bias = true,
                               .final_norm = false,
                               .learned_positions = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "openai-gpt",
               .defaults = R"({"vocab_size": 40478, "hidden_size": 768, "num_hidden_layers": 12,
                               "num_attention_heads": 12, "max_position_embeddings": 512,
                               "rms_norm_eps": 1e-5, "afn": "gelu", "tie_word_embeddings": true})",
               .names = gpt_names(),
               .unread = {"intermediate_size"},
               .activation_key = "",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families::openai_gpt
