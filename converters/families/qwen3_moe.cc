// Qwen3 with experts: the attention of Qwen3, routed experts in place of the MLP.
// Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py.

#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen3_moe {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {qwen3::kFamily.text_decoder().rules(config, prefix), expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return qwen3::kFamily.text_decoder().build(config, options);
}

constexpr KerasRow kKerasDenseMlp[] = {
    {"mlp/_feedforward_gate_dense/vars/0", "mlp.gate_proj.weight", KerasOp::kTranspose, "DM"},
    {"mlp/_feedforward_intermediate_dense/vars/0", "mlp.up_proj.weight", KerasOp::kTranspose, "DM"},
    {"mlp/_feedforward_output_dense/vars/0", "mlp.down_proj.weight", KerasOp::kTranspose, "MD"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen3_moe",
               .defaults = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                               "num_hidden_layers": 24, "num_attention_heads": 32,
                               "num_key_value_heads": 4, "max_position_embeddings": 32768,
                               "sliding_window": 4096, "num_experts": 128,
                               "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                               "norm_topk_prob": false})",
               .names = {{"num_experts", {"num_local_experts", "num_experts"}}},
               .window = WindowRule::kAllIfUsed,
               .attention_bias = true,
               .experts = ExpertRule::kListed}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Qwen3Moe", score_head}},
    .gguf = {{.name = "qwen3moe",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp,
                         kExperts, kFusedExperts},
              .normed_experts = true,
              .keys = standard_keys({kExpertSizes}),
              .unread = {kOutputBias},
              .needs_experts = true}},
    .keras = {{.classes = {"Qwen3MoeBackbone"},
               .decoder = "qwen3_moe_transformer_decoder",
               .final_norm = "qwen3_moe_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms},
                          {kKerasAttention},
                          {kKerasQwen3Norms},
                          {kKerasDenseMlp, KerasLayer::kDense},
                          {kKerasExperts, KerasLayer::kExperts}}}}};

}  // namespace ferry::converters::families::qwen3_moe
