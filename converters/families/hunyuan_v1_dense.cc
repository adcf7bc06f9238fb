// Hunyuan (dense, 0.5B to 7B, and A13B with experts): Llama with RMSNorm over head_dim of q and k,
// after RoPE, whose base an alpha may change. Experts stand beside an MLP of their size. Source:
// transformers, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py,
// models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::hunyuan_v1_dense {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kHunyuanGguf[] = {
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.query_layernorm.weight"},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.key_layernorm.weight"},
};

constexpr GgufName kHunyuanExpertsGguf[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.gate.wg.weight"},
    {"blk.{i}.ffn_down_shexp.weight", "model.layers.{i}.mlp.shared_mlp.down_proj.weight"},
    {"blk.{i}.ffn_gate_shexp.weight", "model.layers.{i}.mlp.shared_mlp.gate_proj.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.mlp.shared_mlp.up_proj.weight"},
};

Status read_moe(const JsonFields&, ModelConfig& config) {
  config.moe.shared_gate = false;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string attention = prefix + "layers.{i}.self_attn.";
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       rename_rules(attention, {{"query_layernorm.weight", "layers.{i}.attention.q_norm.weight"},
                                {"key_layernorm.weight", "layers.{i}.attention.k_norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       expert_rules(prefix, config),
       rename_rules(
           prefix + "layers.{i}.mlp.",
           {{"gate.wg.weight", "layers.{i}.feed_forward.gate.weight"},
            {"shared_mlp.gate_proj.weight", "layers.{i}.feed_forward.shared.w1.weight"},
            {"shared_mlp.up_proj.weight", "layers.{i}.feed_forward.shared.w3.weight"},
            {"shared_mlp.down_proj.weight", "layers.{i}.feed_forward.shared.w2.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kAfter});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "hunyuan_v1_dense",
               .defaults = R"({"pad_token_id": 0, "vocab_size": 290943, "hidden_size": 4096,
                               "intermediate_size": 11008, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "max_position_embeddings": 2048,
                               "rms_norm_eps": 1e-5})",
               .rope = RopeRule::kAlpha,
               .attention_bias = true},
              {.name = "hunyuan_v1_moe",
               .defaults = R"({"pad_token_id": 0, "vocab_size": 290943, "hidden_size": 4096,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                               "num_experts": 1, "num_experts_per_tok": 1,
                               "moe_intermediate_size": 11008,
                               "shared_expert_intermediate_size": 11008})",
               .names = {{"num_experts", {"num_local_experts", "num_experts"}},
                         {"num_experts_per_tok", {"num_experts_per_tok", "moe_topk"}},
                         {"moe_intermediate_size", {"intermediate_size"}},
                         {"shared_expert_intermediate_size", {"intermediate_size"}}},
               .rope = RopeRule::kAlpha,
               .attention_bias = true,
               .experts = ExpertRule::kAll,
               .shared_expert = true,
               .read = read_moe}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"HunYuanDenseV1", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "hunyuan-dense",
              .tokenizer_keys = {.hunyuan = true},
              .tables = {kFrame, kHunyuanGguf, kAttention, kFusedAttention, kValueAndOutput,
                         kPreNorm, kMlp},
              .keys = standard_keys({kAlphaRope}),
              .unread = {kOutputBias}},
             {.name = "hunyuan-moe",
              .tokenizer_keys = {.hunyuan = true},
              .model_type = "hunyuan_v1_moe",
              .tables = {kFrame, kHunyuanGguf, kAttention, kValueAndOutput, kPreNorm,
                         kHunyuanExpertsGguf, kExperts},
              .normed_experts = true,
              .keys = standard_keys(
                  {kSharedLength, kExpertLength, kExpertsOfToken, kSharedCount, kAlphaRope}),
              .unread = {kOutputBias}}}};

}  // namespace ferry::converters::families::hunyuan_v1_dense
