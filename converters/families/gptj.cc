// GPT-J: CodeGen with q, k and v in matrices of their own.
// Source: transformers, models/gptj/modeling_gptj.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gptj {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_rotary_dim(fields, config));
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string attention = prefix + "h.{i}.attn";
  return concat(
      {gpt_rules(prefix), paired_rope_rules(attention, /*bias=*/false),
       rename_rules(attention + ".", {{"v_proj.weight", "layers.{i}.attention.wv.weight"},
                                      {"out_proj.weight", "layers.{i}.attention.wo.weight"}}),
       plain_mlp_rules(prefix, /*bias=*/true, "mlp.fc_in", "mlp.fc_out", "h.{i}."),
       rename_rules("", {{"lm_head.bias", "output.bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(
      config, options, {.residuals = Residuals::kOneNorm, .mlp_bias = true, .head_bias = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gptj",
               .defaults = R"({"vocab_size": 50400, "hidden_size": 4096, "num_hidden_layers": 28,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "rotary_dim": 64, "rms_norm_eps": 1e-5,
                               "activation_function": "gelu_new"})",
               .names = gpt_names(),
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"GPTJ", early_score_head, /*texts=*/true, /*tokens=*/false}}};

}  // namespace ferry::converters::families::gptj
