// Qwen3-Next, with experts or dense. The input projections of the linear layers are packed per key head:
// in_proj_qkvz as q, k, v, z and in_proj_ba as b, a.
// Source: transformers, models/qwen3_next/modeling_qwen3_next.py.

#include "converters/families/families.h"
#include "converters/hybrid.h"
#include "converters/row_layouts.h"
#include "converters/standard_keys.h"

namespace ferry::families {
namespace {

KeyRule packed_qkvz() {
  KeyRule rule;
  rule.name = "de-interleave in_proj_qkvz";
  rule.source = "model.layers.{i}.linear_attn.in_proj_qkvz.weight";
  rule.targets = {{"layers.{i}.attention.in_proj_qkv.weight",
                   [](const ModelConfig& c) { return qkv_rows(c.linear); }},
                  {"layers.{i}.attention.in_proj_z.weight",
                   [](const ModelConfig& c) { return qkvz_rows(c.linear, QkvzPart::kGate); }}};
  rule.expected_rows = [](const ModelConfig& c) { return qkvz_row_count(c.linear); };
  return rule;
}

KeyRule packed_ba() {
  KeyRule rule;
  rule.name = "de-interleave in_proj_ba";
  rule.source = "model.layers.{i}.linear_attn.in_proj_ba.weight";
  rule.targets = {{"layers.{i}.attention.in_proj_b.weight",
                   [](const ModelConfig& c) { return ba_rows(c.linear, BaPart::kBeta); }},
                  {"layers.{i}.attention.in_proj_a.weight",
                   [](const ModelConfig& c) { return ba_rows(c.linear, BaPart::kAlpha); }}};
  rule.expected_rows = [](const ModelConfig& c) { return ba_row_count(c.linear); };
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({hybrid_rules("model.", config),
                 {packed_qkvz(), packed_ba(), head_rule(),
                  drop_rule("mtp.*", "multi-token prediction: not part of the model's output")}});
}

}  // namespace

const FamilySpec kQwen3Next = {.model_types = {"qwen3_next"},
                               .check = accept_any,
                               .rules = rules,
                               .ties = standard_ties,
                               .build = build_hybrid};

}  // namespace ferry::families
