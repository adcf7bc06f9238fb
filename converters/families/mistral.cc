// Mistral: Llama with a sliding window in every layer (where the config has one).
// Source: transformers, models/mistral/modeling_mistral.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig&) {
  return concat({standard_matrix_rules("model."),
                 standard_norm_rules("model."),
                 packed_export_rules("model.", /*qkv_bias=*/false, /*mlp_bias=*/false),
                 {head_rule()}});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {});
}

}  // namespace

const FamilySpec kMistral = {
    .model_types = {"mistral"}, .rules = rules, .ties = standard_ties, .build = build};

}  // namespace ferry::converters::families
