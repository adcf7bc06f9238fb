// Nemotron and Minitron: Llama with layer norms that multiply by 1 + w, an MLP without a gate and
// with squared ReLU, and RoPE over a part of each head.
// Source: transformers, models/nemotron/modeling_nemotron.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::nemotron {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {attention_rules(prefix, config.attention_bias),
       plain_mlp_rules(prefix, config.mlp_bias, "mlp.up_proj", "mlp.down_proj"),
       shifted_norm_rules(
           prefix, {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                    {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                    {"norm.weight", "norm.weight"}}),
       rename_rules(prefix,
                    {{"layers.{i}.input_layernorm.bias", "layers.{i}.attention_norm.bias"},
                     {"layers.{i}.post_attention_layernorm.bias", "layers.{i}.ffn_norm.bias"},
                     {"norm.bias", "norm.bias"},
                     {"embed_tokens.weight", "tok_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias}, .mlp_bias = config.mlp_bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "nemotron",
               .defaults = R"({"vocab_size": 256000, "hidden_size": 6144,
                               "intermediate_size": 24576, "num_hidden_layers": 32,
                               "num_attention_heads": 48, "hidden_act": "relu2",
                               "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                               "partial_rotary_factor": 0.5})",
               .names = {{"rms_norm_eps", {"norm_eps"}}},
               .partial_rope = true,
               .attention_bias = true,
               .mlp_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Nemotron", score_head}},
    .gguf = {{.name = "nemotron",
              .tokenizer_keys = {.sentence_piece = true,
                                 .ids = {{{"tokenizer.ggml.padding_token_id", 0},
                                          {"tokenizer.ggml.unknown_token_id", 1}}}},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm,
                         kNormBiases, kMlp},
              .shifted_norms = true,
              .partial_rotary = true,
              .layer_norm = true,
              .keys = standard_keys({kVocabulary, kLayerNormEpsilon, kRopeDimension, kRopeScaling}),
              .activation = Activation::kRelu2,
              .own_head = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::nemotron
