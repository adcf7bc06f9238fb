// CodeGen and CodeGen2: attention and MLP read the same layer norm and are added side by side. RoPE
// rotates neighbouring dimensions of a part of each head. q, k and v are packed in blocks of heads.
// Source: transformers, models/codegen/modeling_codegen.py.

#include <fmt/format.h>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder.h"
#include "converters/config/ranges.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
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
  if (config.q_size() != config.hidden_size) {
    return fields.bad("head_dim", fmt::format("is {}: {} heads do not make {}", config.head_dim,
                                              config.num_heads, config.hidden_size));
  }
  const int64_t blocks = fields.find("head_dim") ? kBlocks2 : kBlocks;
  config.numbers[kQkvBlocks] = blocks;
  if (config.num_heads % blocks == 0) return {};
  return fields.bad("num_attention_heads",
                    fmt::format("is {}, not a multiple of {} blocks", config.num_heads, blocks));
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  constexpr const char* kMask = "the causal mask is not a weight";
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
        drop_rule(prefix + "h.{i}.attn.causal_mask", kMask),
        drop_rule(prefix + "h.{i}.attn.bias", kMask),
        drop_rule(prefix + "h.{i}.attn.masked_bias", kMask)}});
}

ValueId parallel_layer(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ValueId normed =
      layer_norm(b, x, layer_name(layer, "attention_norm"), c.config.rms_norm_eps);
  const ValueId attended = attention(b, c, normed, layer, {});
  const ValueId mapped = plain_mlp(b, c.config, normed, layer_name(layer, "feed_forward"));
  return b.add(b.add(attended, mapped), x);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_frame(
      config, options,
      {.layer = parallel_layer,
       .final_norm = [&](GraphBuilder& b,
                         ValueId x) { return layer_norm(b, x, "norm", config.rms_norm_eps); },
       .head_bias = true});
}

}  // namespace

const FamilySpec kCodegen = {
    .types = {{.name = "codegen",
               .defaults = R"({"vocab_size": 50400, "hidden_size": 4096, "num_hidden_layers": 28,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "rotary_dim": 64, "rms_norm_eps": 1e-5,
                               "activation_function": "gelu_new"})",
               // The class maps these to the n_ names, which win where a config has both.
               .names = {{"hidden_size", {"hidden_size", "n_embd"}},
                         {"num_hidden_layers", {"num_hidden_layers", "n_layer"}},
                         {"num_attention_heads", {"num_attention_heads", "n_head"}},
                         {"max_position_embeddings", {"max_position_embeddings", "n_positions"}},
                         {"intermediate_size", {"n_inner"}},
                         {"rms_norm_eps", {"layer_norm_epsilon"}},
                         {"num_key_value_heads", {}}},
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}}};

}  // namespace ferry::converters::families
