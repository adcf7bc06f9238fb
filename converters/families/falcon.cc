// Falcon 7B, 40B, 180B and RW, and Falcon 2: q, k and v in one tensor, RoPE or ALiBi, and three
// forms of a layer. Source: transformers, models/falcon/modeling_falcon.py.

#include "converters/blocks/alibi.h"
#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::falcon {
namespace {

constexpr const char* kTwoNorms = "num_ln_in_parallel_attn";
constexpr const char* kParallel = "parallel_attn";

// The reference fails for the other combinations of parallel_attn and num_ln_in_parallel_attn.
Status read(const JsonFields& fields, ModelConfig& config) {
  const bool newer = FERRY_TRY(fields.flag_or("new_decoder_architecture", false));
  const bool parallel = FERRY_TRY(fields.flag_or(kParallel, false));
  const int64_t norms = FERRY_TRY(fields.integer_or(kTwoNorms, {0, INT32_MAX}, newer ? 2 : 1));
  if (newer && !parallel) return fields.bad(kParallel, "is not true in the new architecture");
  if (newer ? norms != 1 && norms != 2 : parallel && norms == 2) {
    return fields.bad(kTwoNorms, "is not what the architecture has");
  }
  config.numbers[kParallel] = parallel ? 1 : 0;
  config.numbers[kTwoNorms] = newer && norms == 2 ? 1 : 0;
  const bool one = !newer && FERRY_TRY(fields.flag_or("multi_query", false));
  if (one) config.num_kv_heads = 1;
  if (!newer && !one && config.num_kv_heads != config.num_heads) {
    return fields.bad("num_key_value_heads", "is not the number of heads");
  }
  if (FERRY_TRY(fields.flag_or("alibi", false))) config.numbers[kAlibi] = kRoundedAlibi;
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias, two = config.number(kTwoNorms) > 0;
  const std::string layer = prefix + "h.{i}.";
  std::vector<KeyRule> rules =
      concat({query_key_value_rules(layer, "self_attention.", bias),
              plain_mlp_rules(prefix, bias, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "h.{i}."),
              parameter_rules(layer, /*bias=*/true,
                              {{two ? "ln_attn" : "input_layernorm", "layers.{i}.attention_norm"}}),
              parameter_rules(prefix, /*bias=*/true, {{"ln_f", "norm"}}),
              rename_rules(prefix, {{"word_embeddings.weight", "tok_embeddings.weight"}})});
  if (config.number(kParallel) > 0 && !two) return rules;
  return concat({rules, parameter_rules(layer, /*bias=*/true,
                                        {{two ? "ln_mlp" : "post_attention_layernorm",
                                          "layers.{i}.ffn_norm"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  const Residuals parallel =
      config.number(kTwoNorms) > 0 ? Residuals::kSideBySide : Residuals::kOneNorm;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias},
       .residuals = config.number(kParallel) > 0 ? parallel : Residuals::kInTurn,
       .mlp_bias = bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "falcon",
               .defaults = R"({"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
                               "num_attention_heads": 71, "max_position_embeddings": 2048,
                               "activation": "gelu", "rms_norm_eps": 1e-5, "multi_query": true,
                               "parallel_attn": true, "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"n_embed", "hidden_size"}},
                         {"intermediate_size", {"ffn_hidden_size"}},
                         {"num_key_value_heads", {"num_kv_heads"}},
                         {"rms_norm_eps", {"layer_norm_epsilon"}},
                         {"attention_bias", {"bias"}}},
               .unread = {"head_dim"},
               .activation_key = "activation",
               .mlp_ratio = 4,
               .attention_bias = true,
               .rope_layers = RopeLayers::kUnlessAlibi,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"Falcon", early_score_head}}};

}  // namespace ferry::converters::families::falcon
