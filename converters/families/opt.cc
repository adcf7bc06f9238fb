// OPT and Galactica: learned positions, of which the checkpoint's first two rows are never used;
// layer norms before both blocks of a layer, or behind them (350M), where embeddings may be
// narrower than the layers. Source: transformers, models/opt/modeling_opt.py.

#include "converters/blocks/styled_decoder.h"
#include "converters/config/ranges.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::opt {
namespace {

constexpr const char* kNormBefore = "norm_before";
constexpr const char* kNoFinalNorm = "no_final_norm";
constexpr const char* kNormWeights = "norm_weights";
constexpr const char* kWidth = "embedding_size";  // 0: hidden_size

Status read(const JsonFields& fields, ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = FERRY_TRY(fields.integer_or("word_embed_proj_dim", kSizeRange, hidden));
  config.numbers[kWidth] = width == hidden ? 0 : width;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({attention_rules(prefix, config.attention_bias, "out_proj"),
                 plain_mlp_rules(prefix, config.attention_bias, "fc1", "fc2"),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"layers.{i}.self_attn_layer_norm", "layers.{i}.attention_norm"},
                                  {"layers.{i}.final_layer_norm", "layers.{i}.ffn_norm"},
                                  {"final_layer_norm", "norm"}}),
                 rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"},
                                       {"project_in.weight", "project_in.weight"},
                                       {"project_out.weight", "project_out.weight"}}),
                 {later_rows_rule(prefix + "embed_positions.weight", "position_embeddings.weight",
                                  /*skipped=*/2, config.max_positions)}});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias, before = config.number(kNormBefore) > 0;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias},
       .norm = config.number(kNormWeights) > 0 ? NormKind::kLayer : NormKind::kLayerBare,
       .residuals = before ? Residuals::kInTurn : Residuals::kNormAfter,
       .mlp_bias = bias,
       .final_norm = before && config.number(kNoFinalNorm) == 0,
       .learned_positions = true,
       .embedding_size = config.number(kWidth)});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "opt",
               .defaults = R"({"vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12,
                               "intermediate_size": 3072, "max_position_embeddings": 2048,
                               "num_attention_heads": 12, "activation_function": "relu",
                               "rms_norm_eps": 1e-5, "attention_bias": true,
                               "tie_word_embeddings": true})",
               .names = {{"intermediate_size", {"ffn_dim"}},
                         {"attention_bias", {"enable_bias"}},
                         {"rms_norm_eps", {}},
                         {"num_key_value_heads", {}},
                         {"head_dim", {}}},
               .flags = {{"do_layer_norm_before", kNormBefore, true},
                         {"_remove_final_layer_norm", kNoFinalNorm},
                         {"layer_norm_elementwise_affine", kNormWeights, true}},
               .activation_key = "activation_function",
               .rope = RopeRule::kNone,
               .attention_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"model.decoder.", "decoder."}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families::opt
