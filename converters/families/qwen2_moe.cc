// Qwen1.5-MoE and Qwen2-MoE: the attention of Qwen2, routed experts and a shared one in place of
// the MLP. Every second layer before max_window_layers has a sliding window where
// use_sliding_window is set. Source: transformers, models/qwen2_moe/modeling_qwen2_moe.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen2_moe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 bias_rules(prefix, /*qkv=*/config.attention_bias, /*output=*/false, /*mlp=*/false),
                 expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = config.attention_bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen2_moe",
               .defaults = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
                               "num_hidden_layers": 24, "num_attention_heads": 16,
                               "num_key_value_heads": 16, "max_position_embeddings": 32768,
                               "sliding_window": 4096, "max_window_layers": 28,
                               "attention_bias": true, "num_experts": 60,
                               "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                               "shared_expert_intermediate_size": 5632})",
               .names = {{"attention_bias", {"qkv_bias"}}},
               .window = WindowRule::kEvenBefore,
               .lists_layers = true,
               .attention_bias = true,
               .experts = ExpertRule::kListed,
               .shared_expert = true}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "qwen2moe",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp,
                         kExperts, kFusedExperts},
              .keys = standard_keys({kExpertSizes}),
              .own_head = true}}};

}  // namespace ferry::converters::families::qwen2_moe
