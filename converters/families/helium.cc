// Helium: Llama whose RoPE rotates neighbouring dimensions.
// Source: transformers, models/helium/modeling_helium.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::helium {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {paired_matrix_rules(prefix, config.attention_bias, /*output_bias=*/false, config.mlp_bias),
       standard_norm_rules(prefix)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = config.attention_bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "helium",
          .defaults =
              R"({"pad_token_id": 3, "vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040,
                               "num_hidden_layers": 24, "num_attention_heads": 20,
                               "num_key_value_heads": 20, "head_dim": 128,
                               "max_position_embeddings": 4096, "rms_norm_eps": 1e-8,
                               "rope_theta": 100000.0})",
          .attention_bias = true,
          .mlp_bias = true,
          .read = check_whole_heads}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Helium", score_head}}};

}  // namespace ferry::converters::families::helium
