// CodeGen and CodeGen2: attention and MLP read the same layer norm and are added side by side. RoPE
// rotates neighbouring dimensions of a part of each head. q, k and v are packed in blocks of heads.
// Source: transformers, models/codegen/modeling_codegen.py.

#include <fmt/format.h>

#include "converters/blocks/styled_decoder.h"
#include "converters/config/gpt_names.h"
#include "converters/config/head_checks.h"
#include "converters/config/ranges.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::codegen {
namespace {

// Blocks of the first CodeGen. CodeGen2 was trained on twice as many cores where its config states
// head_dim (1B and 3.7B). Nothing else in a config distinguishes them.
constexpr int64_t kBlocks = 4;
constexpr int64_t kBlocks2 = 8;

Status read(const JsonFields& fields, ModelConfig& config) {
  config.rope.rotary_dim = FERRY_TRY(fields.required("rotary_dim", kHeadDimRange));
  if (config.rope.rotary_dim > config.head_dim || config.rope.rotary_dim % 2 != 0) {
    return fields.bad("rotary_dim", fmt::format("is {}: not an even number up to {}",
                                                config.rope.rotary_dim, config.head_dim));
  }
  FERRY_RETURN_IF_ERROR(check_whole_heads(fields, config));
  const int64_t blocks = fields.find("head_dim") ? kBlocks2 : kBlocks;
  config.numbers[kQkvBlocks] = blocks;
  if (config.num_heads % blocks == 0) return {};
  return fields.bad("num_attention_heads",
                    fmt::format("is {}, not a multiple of {} blocks", config.num_heads, blocks));
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat(
      {rename_rules(prefix, {{"wte.weight", "tok_embeddings.weight"},
                             {"h.{i}.ln_1.weight", "layers.{i}.attention_norm.weight"},
                             {"h.{i}.ln_1.bias", "layers.{i}.attention_norm.bias"},
                             {"h.{i}.attn.out_proj.weight", "layers.{i}.attention.wo.weight"},
                             {"h.{i}.mlp.fc_in.weight", "layers.{i}.feed_forward.w1.weight"},
                             {"h.{i}.mlp.fc_in.bias", "layers.{i}.feed_forward.w1.bias"},
                             {"h.{i}.mlp.fc_out.weight", "layers.{i}.feed_forward.w2.weight"},
                             {"h.{i}.mlp.fc_out.bias", "layers.{i}.feed_forward.w2.bias"},
                             {"ln_f.weight", "norm.weight"},
                             {"ln_f.bias", "norm.bias"}}),
       rename_rules("", {{"lm_head.bias", "output.bias"}}),
       {codegen_qkv_rule(prefix + "h.{i}.attn.qkv_proj.weight"),
        drop_rule(prefix + "h.{i}.attn.causal_mask", "the causal mask is not a weight")},
       derived_rules(prefix + "h.{i}.attn.")});
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
