// Arcee's AFM: Llama with an MLP without a gate and with squared ReLU.
// Source: transformers, models/arcee/modeling_arcee.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::arcee {
namespace {

using namespace gguf_tables;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({attention_rules(prefix, config.attention_bias),
                 plain_mlp_rules(prefix, config.mlp_bias, "mlp.up_proj", "mlp.down_proj"),
                 standard_norm_rules(prefix),
                 rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias, .output_bias = bias},
                               .norm = NormKind::kRms,
                               .mlp_bias = config.mlp_bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "arcee",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 2560, "intermediate_size": 18432,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "hidden_act": "relu2", "max_position_embeddings": 4096,
                               "rms_norm_eps": 1e-5})",
               .attention_bias = true,
               .mlp_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Arcee", score_head}},
    .gguf = {{.name = "arcee",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = llama_keys(),
              .unread = block_biases(),
              .activation = Activation::kRelu2,
              .rope_factors = true}}};

}  // namespace ferry::converters::families::arcee
