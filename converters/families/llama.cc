// Llama 2 and 3, and what is built like them under the same model_type (SmolLM2, TinyLlama, ...).
// Source: transformers, models/llama/modeling_llama.py.

#include "converters/blocks/llama_like.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {llama_rules(config), packed_export_rules("model.", config.attention_bias, config.mlp_bias)});
}

}  // namespace

const FamilySpec kLlama = {
    .model_types = {"llama"}, .rules = rules, .ties = standard_ties, .build = build_llama};

}  // namespace ferry::converters::families
