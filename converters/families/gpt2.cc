// GPT-2: learned positions instead of RoPE, layer norms, an MLP without a gate. Matrices are those
// of Conv1D, (in, out); q, k and v are the columns of one. Source: transformers,
// models/gpt2/modeling_gpt2.py.

#include "converters/blocks/decoder_context.h"
#include "converters/blocks/styled_decoder.h"
#include "converters/config/gpt_names.h"
#include "converters/families/families.h"
#include "converters/keys/gpt_keys.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt2 {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.flag_or("add_cross_attention", false))) {
    return fields.error(ErrorCode::kUnsupported, "add_cross_attention", "is true: not supported");
  }
  if (!FERRY_TRY(fields.flag_or("scale_attn_weights", true))) config.scalars.attention = 1.0;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "h.{i}.";
  return concat({gpt_rules(prefix), conv1d_rules(layer, config),
                 parameter_rules(layer, /*bias=*/true, {{"ln_2", "layers.{i}.ffn_norm"}}),
                 rename_rules(prefix, {{"wpe.weight", "position_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = true, .output_bias = true},
                               .mlp_bias = true,
                               .learned_positions = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gpt2",
               .defaults = R"({"vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12,
                               "num_attention_heads": 12, "max_position_embeddings": 1024,
                               "rms_norm_eps": 1e-5, "activation_function": "gelu_new",
                               "tie_word_embeddings": true})",
               .names = gpt_names(),
               .flags = {{kScoresByLayer}},
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families::gpt2
