// Qwen1.5-MoE and Qwen2-MoE: the attention of Qwen2, routed experts and a shared one in place of
// the MLP. Every second layer before max_window_layers has a sliding window where
// use_sliding_window is set. Source: transformers, models/qwen2_moe/modeling_qwen2_moe.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen2_moe {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 bias_rules(prefix, /*qkv=*/config.attention_bias, /*output=*/false, /*mlp=*/false),
                 expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = config.attention_bias});
}

constexpr KerasRow kKerasMoe[] = {
    {"_self_attention_layer/query_dense/vars/1", "self_attn.q_proj.bias", KerasOp::kFlatten, "Hd"},
    {"_self_attention_layer/key_dense/vars/1", "self_attn.k_proj.bias", KerasOp::kFlatten, "Kd"},
    {"_self_attention_layer/value_dense/vars/1", "self_attn.v_proj.bias", KerasOp::kFlatten, "Kd"},
    {"_self_attention_layer/_output_dense/vars/0", "self_attn.o_proj.weight",
     KerasOp::kMergeFirstTranspose, "HdD"},
    {"mlp/shared_expert_dense/_feedforward_gate_dense/vars/0", "mlp.shared_expert.gate_proj.weight",
     KerasOp::kTranspose, "DS"},
    {"mlp/shared_expert_dense/_feedforward_intermediate_dense/vars/0",
     "mlp.shared_expert.up_proj.weight", KerasOp::kTranspose, "DS"},
    {"mlp/shared_expert_dense/_feedforward_output_dense/vars/0",
     "mlp.shared_expert.down_proj.weight", KerasOp::kTranspose, "SD"},
    {"mlp/shared_expert_gate_dense/vars/0", "mlp.shared_expert_gate.weight", KerasOp::kTranspose,
     "D1"},
};

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
    .classifiers = {{"Qwen2Moe", score_head}},
    .gguf = {{.name = "qwen2moe",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp,
                         kExperts, kFusedExperts},
              .keys = standard_keys({kExpertSizes}),
              .own_head = true,
              .needs_experts = true}},
    .keras = {{.classes = {"QwenMoeBackbone"},
               .decoder = "qwen_moe_transformer_decoder",
               .final_norm = "qwen_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms}, {kKerasPlainQkv}, {kKerasMoe}, {kKerasExperts}}}}};

}  // namespace ferry::converters::families::qwen2_moe
