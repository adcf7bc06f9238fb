#include "converters/blocks/gemma.h"

#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> gemma_rules(const std::string& prefix, const ModelConfig& config) {
  return concat(
      {standard_matrix_rules(prefix),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       shifted_norm_rules(
           prefix,
           {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
            {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
            {"layers.{i}.pre_feedforward_layernorm.weight", "layers.{i}.ffn_norm.weight"},
            {"layers.{i}.post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"},
            {"norm.weight", "norm.weight"}})});
}

}  // namespace ferry::converters
