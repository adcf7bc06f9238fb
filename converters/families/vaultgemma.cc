// VaultGemma: Gemma 2 without the norms behind the blocks.
// Source: transformers, models/vaultgemma/modeling_vaultgemma.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/gemma.h"
#include "converters/families/families.h"

namespace ferry::converters::families::vaultgemma {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  return gemma2::kFamily.types.front().read(fields, config);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "vaultgemma",
               .defaults = R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
                               "num_hidden_layers": 26, "num_attention_heads": 8,
                               "num_key_value_heads": 4, "head_dim": 256,
                               "max_position_embeddings": 8192,
                               "hidden_activation": "gelu_pytorch_tanh",
                               "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
                               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                               "sliding_window": 4096, "sliding_window_pattern": 2})",
               .names = {{"sliding_window_pattern", {}}},  // layers always alternate
               .activation_key = "hidden_activation",
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .attention_bias = true,
               .read = read}},
    .components = {{.rules = gemma_rules, .build = build_llama}}};

}  // namespace ferry::converters::families::vaultgemma
