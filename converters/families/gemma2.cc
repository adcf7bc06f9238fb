// Gemma 2: every second layer has a sliding window, norms stand before and after both blocks,
// scores and logits are softcapped, scores are scaled by query_pre_attn_scalar before that. Source:
// transformers, models/gemma2/modeling_gemma2.py, with its eager attention: the fused one leaves
// the softcap out.

#include "converters/blocks/decoder.h"
#include "converters/blocks/gemma.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({gemma_rules("model.", config), {head_rule()}});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(
      config, options, {.qkv_bias = config.attention_bias, .output_bias = config.attention_bias},
      {.before = true, .after = true});
}

}  // namespace

const FamilySpec kGemma2 = {
    .model_types = {"gemma2"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
