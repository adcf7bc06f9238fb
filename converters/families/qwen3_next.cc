// Qwen3-Next, with experts or dense. The input projections of the linear layers are packed per key
// head: in_proj_qkvz as q, k, v, z and in_proj_ba as b, a.
// Source: transformers, models/qwen3_next/modeling_qwen3_next.py.

#include "converters/blocks/hybrid.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen3_next {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {hybrid_rules(config, prefix), packed_delta_net_rules(prefix, PackedLayout::kInterleaved)});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen3_next",
               .defaults = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
                               "num_hidden_layers": 48, "num_attention_heads": 16,
                               "num_key_value_heads": 2, "head_dim": 256,
                               "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
                               "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                               "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                               "linear_conv_kernel_dim": 4, "num_experts": 512,
                               "num_experts_per_tok": 10, "moe_intermediate_size": 512,
                               "shared_expert_intermediate_size": 512, "norm_topk_prob": true})",
               .partial_rope = true,
               .lists_layers = true,
               .attention_bias = true,
               .hybrid = true,
               .experts = ExpertRule::kListed,
               .shared_expert = true}},
    .components = {{.rules = rules, .build = build_hybrid}},
    .dropped = {{"mtp.*", "multi-token prediction: not part of the model's output"}},
    .gguf = {{.name = "qwen3next",
              .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp, kExperts,
                         kFusedExperts, kGroupedDeltaNet},
              .shifted_norms = true,
              .linear_attention = true,
              .normed_experts = true,
              .keys = standard_keys({kExpertSizes, kLinearAttention}),
              .unread = {kOutputBias},
              .needs_experts = true}}};

}  // namespace ferry::converters::families::qwen3_next
