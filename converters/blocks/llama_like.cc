#include "converters/blocks/llama_like.h"

#include "converters/blocks/decoder.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> llama_rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       bias_rules(prefix, config.attention_bias, config.attention_bias, config.mlp_bias)});
}

Result<Methods> build_llama(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(
      config, options, {.qkv_bias = config.attention_bias, .output_bias = config.attention_bias});
}

}  // namespace ferry::converters
