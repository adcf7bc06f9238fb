// ERNIE 4.5 (dense): Llama whose RoPE rotates neighbouring dimensions; use_bias gives every
// projection a bias. Source: transformers, models/ernie4_5/modeling_ernie4_5.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::ernie4_5 {
namespace {

using namespace gguf_tables;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  return concat(
      {paired_matrix_rules(prefix, bias, bias, config.mlp_bias), standard_norm_rules(prefix)});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "ernie4_5",
               .defaults = R"({"vocab_size": 103424, "hidden_size": 1024,
                               "intermediate_size": 3072, "num_hidden_layers": 18,
                               "num_attention_heads": 16, "num_key_value_heads": 2,
                               "head_dim": 128, "max_position_embeddings": 131072,
                               "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                               "tie_word_embeddings": true})",
               .names = {{"attention_bias", {"use_bias"}}, {"mlp_bias", {"use_bias"}}},
               .attention_bias = true,
               .mlp_bias = true}},
    .components = {{.rules = rules, .build = build_llama}},
    .gguf = {{.name = "ernie4_5",
              .tokenizer_keys = {.sentence_piece = true, .stated_prefix = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = standard_keys(),
              .unread = mlp_biases()}}};

}  // namespace ferry::converters::families::ernie4_5
