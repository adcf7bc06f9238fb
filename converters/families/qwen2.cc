// Qwen2 and Qwen2.5: q, k and v always have biases, o never; a sliding window in the layers from
// max_window_layers on, where use_sliding_window says so.
// Source: transformers, models/qwen2/modeling_qwen2.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig&) {
  return concat({standard_matrix_rules("model."),
                 standard_norm_rules("model."),
                 bias_rules("model.", /*qkv=*/true, /*output=*/false, /*mlp=*/false),
                 packed_export_rules("model.", /*qkv_bias=*/true, /*mlp_bias=*/false),
                 {head_rule()}});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = true});
}

}  // namespace

const FamilySpec kQwen2 = {
    .model_types = {"qwen2"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
