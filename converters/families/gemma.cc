// Gemma (1): Llama with tanh-GELU, norms by (1 + w), embeddings times sqrt(hidden_size), a head_dim
// of its own and a tied head.
// Source: transformers, models/gemma/modeling_gemma.py.

#include "converters/blocks/llama_like.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {standard_matrix_rules("model."),
       bias_rules("model.", config.attention_bias, config.attention_bias, /*mlp=*/false),
       shifted_norm_rules(
           "model.", {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                      {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                      {"norm.weight", "norm.weight"}}),
       {head_rule()}});
}

}  // namespace

const FamilySpec kGemma = {
    .model_types = {"gemma"}, .rules = rules, .ties = standard_ties, .build = build_llama};

}  // namespace ferry::converters::families
