// Text decoder of Qwen3-VL with experts: Qwen3-MoE under another name, whose chosen scores always
// sum to 1. Its experts are fused, and often transposed except in GGUF files. Without images the
// vision tower is dropped; qwen3_vl_vision.cc has it. Source: transformers,
// models/qwen3_vl_moe/modeling_qwen3_vl_moe.py.

#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen3_vl_moe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kVision = "vision tower: only the text part is built";

Status read(const JsonFields&, ModelConfig& config) {
  config.moe.norm_top_scores = true;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  if (config.moe.experts == 0) return qwen3::kFamily.text_decoder().rules(config, prefix);
  const std::string mlp = prefix + "layers.{i}.mlp.";
  return concat({qwen3::kFamily.text_decoder().rules(config, prefix),
                 rename_rules(mlp, {{"gate.weight", "layers.{i}.feed_forward.gate.weight"}}),
                 either_way_expert_rules(mlp + "experts.gate_up_proj", mlp + "experts.down_proj"),
                 stacked_expert_rules(mlp + "experts.{e}.", "gate_proj.weight", "up_proj.weight",
                                      "down_proj.weight")});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return qwen3::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen3_vl_moe_text",
               .wrapper = {.name = "qwen3_vl_moe"},
               .defaults = R"({"vocab_size": 151936, "hidden_size": 2048,
                               "intermediate_size": 5632, "num_hidden_layers": 24,
                               "num_attention_heads": 16, "num_key_value_heads": 16,
                               "max_position_embeddings": 128000, "rope_theta": 500000.0,
                               "num_experts": 60, "num_experts_per_tok": 4,
                               "moe_intermediate_size": 1408})",
               .names = {{"num_experts", {"num_local_experts", "num_experts"}},
                         {"norm_topk_prob", {}}},
               .attention_bias = true,
               .experts = ExpertRule::kListed,
               .read = read}},
    .components = {{.prefixes = {"model.", "model.language_model."},
                    .rules = rules,
                    .build = build}},
    .dropped = {{"model.visual.*", kVision}, {"visual.*", kVision}},
    .gguf = {{.name = "qwen3vlmoe",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp,
                         kExperts, kFusedExperts, kExpertWeights},
              .interleaved_sections = true,
              .normed_experts = true,
              .keys = standard_keys({kExpertSizes, kDeepstack}),
              .unread = {kOutputBias},
              .needs_experts = true}}};

}  // namespace ferry::converters::families::qwen3_vl_moe
