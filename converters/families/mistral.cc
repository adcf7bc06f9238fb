// Mistral: Llama with a sliding window in every layer, where the config states one.
// Source: transformers, models/mistral/modeling_mistral.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 packed_export_rules(prefix, /*qkv_bias=*/false, /*mlp_bias=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {});
}

}  // namespace

const FamilySpec kMistral = {
    .types = {{.name = "mistral",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "max_position_embeddings": 131072,
                               "sliding_window": 4096})",
               .window = WindowRule::kAll}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families
