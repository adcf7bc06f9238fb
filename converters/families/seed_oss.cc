// Seed-OSS: Llama with three settings for biases: of q, k and v, of the output, and of the MLP.
// Source: transformers, models/seed_oss/modeling_seed_oss.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::seed_oss {
namespace {

using namespace gguf_tables;

constexpr const char* kOutputBias = "attention_out_bias";

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 bias_rules(prefix, config.attention_bias, config.number(kOutputBias) != 0,
                            config.mlp_bias)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(
      config, options,
      {.qkv_bias = config.attention_bias, .output_bias = config.number(kOutputBias) != 0});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "seed_oss",
               .defaults = R"({"pad_token_id": 1, "vocab_size": 155136, "hidden_size": 4096,
                               "intermediate_size": 27648, "num_hidden_layers": 64,
                               "num_attention_heads": 80, "num_key_value_heads": 8,
                               "head_dim": 128, "max_position_embeddings": 524288,
                               "attention_bias": true})",
               .flags = {{kOutputBias, kOutputBias}},
               .attention_bias = true,
               .mlp_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"SeedOss", score_head}},
    .gguf = {
        {.name = "seed_oss",
         .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPostAttentionNorm, kMlp},
         .flags = {{"blk.{i}.attn_output.bias", "attention_out_bias"}},
         .keys = standard_keys(),
         .unread = block_biases()}}};

}  // namespace ferry::converters::families::seed_oss
