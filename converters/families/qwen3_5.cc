// Qwen3.5, dense and with experts (qwen3_5_moe), text part: of text checkpoints under either prefix
// and of multimodal ones, whose vision tower and multi-token-prediction head are left out. Source:
// transformers, models/qwen3_5/modeling_qwen3_5.py and models/qwen3_5_moe/modeling_qwen3_5_moe.py.

#include "converters/blocks/hybrid.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules_below(const std::string& prefix, const ModelConfig& config) {
  return concat(
      {hybrid_rules(prefix, config),
       rename_rules(
           prefix,
           {{"layers.{i}.linear_attn.in_proj_qkv.weight",
             "layers.{i}.attention.in_proj_qkv.weight"},
            {"layers.{i}.linear_attn.in_proj_z.weight", "layers.{i}.attention.in_proj_z.weight"},
            {"layers.{i}.linear_attn.in_proj_b.weight", "layers.{i}.attention.in_proj_b.weight"},
            {"layers.{i}.linear_attn.in_proj_a.weight", "layers.{i}.attention.in_proj_a.weight"}}),
       packed_delta_net_rules(prefix, std::nullopt)});
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  constexpr const char* kVision = "vision tower: only the text part is built";
  constexpr const char* kMtp = "multi-token prediction: not part of the model's output";
  return concat({rules_below("model.", config),
                 rules_below("model.language_model.", config),
                 rules_below("language_model.model.", config),
                 {head_rule(), head_rule("language_model.lm_head.weight"),
                  drop_rule("model.visual.*", kVision), drop_rule("visual.*", kVision),
                  drop_rule("mtp.*", kMtp), drop_rule("model.mtp.*", kMtp)}});
}

}  // namespace

const FamilySpec kQwen35 = {
    .model_types = {"qwen3_5_text", "qwen3_5", "qwen3_5_moe_text", "qwen3_5_moe"},
    .rules = rules,
    .ties = standard_ties,
    .build = build_hybrid};

}  // namespace ferry::converters::families
