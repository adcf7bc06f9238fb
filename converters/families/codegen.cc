// CodeGen and CodeGen2: attention and MLP read the same layer norm and are added side by side. RoPE
// rotates neighbouring dimensions of a part of each head. q, k and v are packed in blocks of heads.
// Source: transformers, models/codegen/modeling_codegen.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::codegen {
namespace {

// Blocks of the first CodeGen. CodeGen2 was trained on twice as many cores where its config states
// head_dim (1B and 3.7B). Nothing else in a config distinguishes them.
constexpr int64_t kBlocks = 4;
constexpr int64_t kBlocks2 = 8;

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_rotary_dim(fields, config));
  FERRY_RETURN_IF_ERROR(check_whole_heads(fields, config));
  config.numbers[kQkvBlocks] = fields.find("head_dim") ? kBlocks2 : kBlocks;
  return check_head_blocks(fields, config, config.number(kQkvBlocks));
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = prefix + "h.{i}.";
  return concat({gpt_rules(prefix),
                 rename_rules(layer, {{"attn.out_proj.weight", "layers.{i}.attention.wo.weight"}}),
                 plain_mlp_rules(prefix, /*bias=*/true, "mlp.fc_in", "mlp.fc_out", "h.{i}."),
                 rename_rules("", {{"lm_head.bias", "output.bias"}}),
                 {codegen_qkv_rule(layer + "attn.qkv_proj.weight"),
                  drop_rule(layer + "attn.causal_mask", "the causal mask is not a weight")}});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(
      config, options, {.residuals = Residuals::kOneNorm, .mlp_bias = true, .head_bias = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "codegen",
               .defaults = R"({"vocab_size": 50400, "hidden_size": 4096, "num_hidden_layers": 28,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "rotary_dim": 64, "rms_norm_eps": 1e-5,
                               "activation_function": "gelu_new"})",
               .names = gpt_names(/*head_dim=*/true),
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families::codegen
